//! Reports of `remat train` about the course of a run: tests on the way, a log, a plot. Also images
//! from a folder, changed at random.

use crate::common::cells;
use crate::common::command::{folder, run, stderr, train};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Rows of a log in JSON lines.
fn rows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_log_has_a_line_a_step_and_tests_where_they_were() {
    let folder = folder("log");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (jsonl, csv, svg) = (path("run.jsonl"), path("run.csv"), path("run.svg"));
    let base = ["mlp", "--steps", "7", "--batch", "64"];
    let report =
        train(&[&base[..], &["--eval-every", "3", "--log", &jsonl, "--plot", &svg]].concat());
    let rows = rows(Path::new(&jsonl));
    let steps: Vec<_> = rows.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6, 7]);
    let tested: Vec<_> =
        rows.iter().map(|row| row["test_loss"].is_number()).zip(steps).filter(|t| t.0).collect();
    assert_eq!(tested, [(true, 3), (true, 6), (true, 7)], "the last test is that after training");
    let last = rows.last().unwrap();
    for (of_row, of_report) in
        [("test_loss", "test_loss"), ("test_accuracy", "test_accuracy"), ("loss", "final_loss")]
    {
        assert_eq!(last[of_row].as_f64(), report[of_report].as_f64(), "{of_row}");
    }
    let total = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    assert!(total("evictions") > 0);
    assert!(total("evictions") <= report["evictions"].as_u64().unwrap());
    assert!(rows.iter().all(|row| row["peak_bytes"].as_u64() <= report["budget_bytes"].as_u64()));
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("mlp on digits") && picture.contains("test"), "{picture}");

    // Tests on the way change nothing in the training. Both formats of the log have the same rows.
    let other = train(&[&base[..], &["--no-test", "--log", &csv]].concat());
    assert_eq!(other["params_sha256"], report["params_sha256"]);
    let text = fs::read_to_string(&csv).unwrap();
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    assert_eq!(names[..3], ["step", "loss", "lr"]);
    let losses: Vec<f64> =
        lines.map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    let expected: Vec<f64> = rows.iter().map(|row| row["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses, expected);
}

#[test]
fn tests_on_the_way_are_within_the_budget_and_change_no_bit() {
    let mut expected = None;
    let tests = [&[][..], &["--eval-every", "1"], &["--eval-every", "2", "--no-test"]];
    let all =
        ["100%", "60%", "40%"].into_iter().flat_map(|budget| tests.map(|test| (budget, test)));
    for (budget, every) in cells(all, 2) {
        let base = ["resnet20", "--steps", "3", "--batch", "96", "--budget", budget];
        let report = train(&[&base[..], every].concat());
        assert!(report["peak_bytes"].as_u64() <= report["budget_bytes"].as_u64());
        let digest = report["params_sha256"].clone();
        assert_eq!(*expected.get_or_insert_with(|| digest.clone()), digest, "{budget} {every:?}");
    }
}

#[test]
fn a_log_that_cannot_be_written_is_refused_before_the_work() {
    for (args, expected) in [
        (&["--log", "run.txt"][..], "name a file that ends in .csv or .jsonl"),
        (&["--log", "-"], "name a file that ends in .csv or .jsonl"),
        (&["--plot", "run.png"], ".svg"),
        (&["--log", "/nowhere/run.csv"], "/nowhere/run.csv"),
        (&["--log", "/dev/full/x.csv"], "/dev/full/x.csv"),
        (&["--eval-every", "0"], "--eval-every"),
        (&["--image-size", "8x8"], "--image-size needs --data images:DIR"),
    ] {
        let output = run(&[&["train", "mlp", "--steps", "1"], args].concat());
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
        assert!(!said.contains("step 1"), "{said}");
    }
}

/// Makes a folder of classes of images, whose brightest rows tell the class.
fn images(name: &str, classes: usize, each: usize, side: u32) -> String {
    let root = folder(name);
    for class in 0..classes {
        let class_folder = root.join(format!("class {class}"));
        fs::create_dir_all(&class_folder).unwrap();
        for i in 0..each {
            let image = image::RgbImage::from_fn(side, side, |x, y| {
                let noise = ((x * 31 + y * 17 + i as u32 * 7) % 64) as u8;
                let bright = y as usize * classes / side as usize == class;
                image::Rgb([noise, if bright { 255 } else { noise }, 64])
            });
            let ending = if i % 2 == 0 { "png" } else { "jpg" };
            image.save(class_folder.join(format!("{i}.{ending}"))).unwrap();
        }
    }
    root.to_str().unwrap().to_owned()
}

#[test]
fn a_folder_of_images_is_learned() {
    let data = format!("images:{}", images("images", 3, 20, 12));
    let base = ["mlp", "--data", &data, "--batch", "16", "--epochs", "30", "--seed", "1"];
    let report = train(&base);
    assert_eq!(report["test_examples"], 12, "every fifth of each class");
    assert_eq!(report["test_accuracy"], 1.0);
    let report = train(&[&base[..], &["--image-size", "6x9"]].concat());
    assert!(report["test_accuracy"].as_f64() > Some(0.9), "{report}");
}

#[test]
fn random_changes_of_images_come_from_the_seed() {
    let data = format!("images:{}", images("augment", 2, 10, 8));
    let base = ["resnet20", "--data", &data, "--batch", "8", "--steps", "3"];
    let digest = |more: &[&str]| train(&[&base[..], more].concat())["params_sha256"].clone();
    let plain = digest(&[]);
    for changes in [&["--random-crop", "2"][..], &["--random-flip"]] {
        let changed = digest(changes);
        assert_ne!(changed, plain, "{changes:?}");
        assert_eq!(changed, digest(&[changes, &["--budget", "85%", "--threads", "1"]].concat()));
        assert_ne!(changed, digest(&[changes, &["--seed", "2"]].concat()));
    }
}

#[test]
fn folders_that_are_no_images_are_explained() {
    let root = folder("no-images");
    let path = |name: &str| {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let empty = path("empty");
    let flat = path("flat");
    fs::write(flat.join("a.png"), b"").unwrap();
    let broken = path("broken");
    for class in ["a", "b"] {
        fs::create_dir_all(broken.join(class)).unwrap();
        fs::write(broken.join(class).join("x.png"), b"no image").unwrap();
    }
    for folder in [&root.join("missing"), &empty, &flat, &broken] {
        let data = format!("images:{}", folder.display());
        let output = run(&["train", "mlp", "--data", &data, "--steps", "1"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(said.contains("error:") && said.contains(name), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        println!("{said}");
    }
}
