//! What is read is what was written, and what cannot be read is refused with its line.

use std::path::Path;

use super::*;
use crate::plan::{BestFit, Limits, Planner, random};

fn read(text: &str) -> Result<Instance, CsvError> {
    Instance::read(text.as_bytes(), Lives::HalfOpen)
}

fn written(instance: &Instance, lives: Lives) -> String {
    let mut bytes = Vec::new();
    instance.write(&mut bytes, lives).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn files_of_all_habits_are_read_alike() {
    let plain = read("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n").unwrap();
    assert_eq!(plain.ids(), ["b1", "b2"]);
    assert_eq!(plain.lifetimes().buffers(), [Buffer::new(0, 3, 4), Buffer::new(3, 9, 4)]);
    for habit in [
        "b1,0,3,4\nb2,3,9,4",
        "id,lower,upper,size\r\nb1,0,3,4\r\nb2,3,9,4\r\n",
        "\u{feff}id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n",
        "\n id , lower , upper , size \n\nb1, 0,3 ,4\n\n  b2,3,0009,4 \n\n",
    ] {
        assert_eq!(read(habit).unwrap(), plain, "{habit:?}");
    }
}

#[test]
fn closed_lives_end_one_later() {
    let closed = Instance::read(&b"a,1,2,1024\nb,4,4,1\n"[..], Lives::Closed).unwrap();
    let buffers = [Buffer::closed(1, 2, 1024), Buffer::closed(4, 4, 1)];
    assert_eq!(closed.lifetimes().buffers(), buffers);
    assert_eq!(written(&closed, Lives::Closed), "id,lower,upper,size\na,1,2,1024\nb,4,4,1\n");
    assert_eq!(written(&closed, Lives::HalfOpen), "id,lower,upper,size\na,1,3,1024\nb,4,5,1\n");
}

#[test]
fn what_is_written_is_read() {
    for (seed, count) in (0..20).map(|seed| (seed, 7 * seed as usize)) {
        let instance = Instance::numbered(random::step(seed, count));
        for lives in [Lives::HalfOpen, Lives::Closed] {
            let text = written(&instance, lives);
            assert_eq!(text.lines().count(), 1 + count);
            assert_eq!(Instance::read(text.as_bytes(), lives).unwrap(), instance);
        }
        let planned = BestFit.plan(instance.lifetimes(), &Limits::none()).unwrap();
        let mut solution = Vec::new();
        instance.write_placement(&planned.placement, &mut solution, Lives::HalfOpen).unwrap();
        let solution = String::from_utf8(solution).unwrap();
        // The same lines with a field more.
        let (lines, offsets): (Vec<_>, Vec<_>) =
            solution.lines().filter_map(|line| line.rsplit_once(',')).unzip();
        assert_eq!(lines, written(&instance, Lives::HalfOpen).lines().collect::<Vec<_>>());
        let offsets: Vec<u64> = offsets[1..].iter().map(|offset| offset.parse().unwrap()).collect();
        assert_eq!(offsets, planned.placement.offsets());
    }
}

#[test]
fn what_is_no_such_file_is_refused_with_its_line() {
    let large = "18446744073709551616";
    let error = |bytes: &[u8], lives| Instance::read(bytes, lives).unwrap_err().to_string();
    for (bytes, start) in [
        ("", "the file is empty"),
        ("\n \r\n\n", "the file is empty"),
        (
            "name,start,end,size\n",
            "line 1 is \"name,start,end,size\": it should be id,lower,upper,size",
        ),
        ("\nid;lower;upper;size\na;0;1;2", "line 2 is \"id;lower;upper;size\""),
        ("id,lower,upper,size\na,0,1,2\na,1,2", "line 3 has 3 fields"),
        ("id,lower,upper,size\na,0,1,2,3", "line 2 has 5 fields"),
        ("id,lower,upper,size\na,0,1,2\nid,lower,upper,size", "line 3: lower is \"lower\""),
        ("a,-1,1,2", "line 1: lower is \"-1\""),
        ("a,0,+1,2", "line 1: upper is \"+1\""),
        ("a,0,1,", "line 1: size is \"\""),
        ("a,0,1,1e6", "line 1: size is \"1e6\""),
        (&format!("a,0,1,2\nb,0,{large},2"), "line 2: upper is \"18446744073709551616\""),
        (
            &format!("a,0,1,{}", "9".repeat(60_000)),
            &format!("line 1: size is \"{}...\"", "9".repeat(40)),
        ),
        ("a,0,1,2\n\nb,5,5,2", "line 3: the buffer lives from 5 to 5"),
        ("a,5,4,2", "line 1: the buffer lives from 5 to 4"),
        ("a,0,1,2\nb,0,1,2\n\nb,0,1,2\na,0,1,2", "line 4: the buffer of line 2 has the id \"b\""),
        ("a,0,1,18446744073709551615\nb,2,3,1", "all buffers together have 2^64 bytes"),
        (&"x".repeat(1 << 17), "line 1 has 65536 bytes or more"),
        (&format!("a,0,1,2\n{}", ",".repeat(1 << 20)), "line 2 has 65536 bytes or more"),
    ] {
        let found = error(bytes.as_bytes(), Lives::HalfOpen);
        assert!(found.starts_with(start), "{found}");
    }
    assert_eq!(error(b"a,0,1,2\n\xff,0,1,2\n", Lives::HalfOpen), "line 2 is no UTF-8 text");
    let end = u64::MAX;
    let found = error(format!("a,0,{end},2").as_bytes(), Lives::Closed);
    assert!(found.starts_with("line 1: the buffer lives to 18446744073709551615"), "{found}");
    assert!(Instance::read(format!("a,0,{end},2").as_bytes(), Lives::HalfOpen).is_ok());
}

/// Whatever bytes there are, there is an answer, and what is read is written and read again.
#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = crate::rng::SplitMix64::new(7);
    let parts: [&[u8]; 14] = [
        b"id,lower,upper,size",
        b"\n",
        b"\r\n",
        b",",
        b"0",
        b"1",
        b"18446744073709551615",
        b"a",
        b" ",
        b"\xff",
        b"\0",
        "\u{feff}".as_bytes(),
        b"\na,0,1,2",
        b"\nb,3,5,1\n",
    ];
    let mut good = 0;
    for _ in 0..20_000 {
        let count = 1 + rng.below(9);
        let bytes: Vec<u8> =
            (0..count).flat_map(|_| parts[rng.below(parts.len())].iter().copied()).collect();
        for lives in [Lives::HalfOpen, Lives::Closed] {
            let Ok(instance) = Instance::read(&bytes[..], lives) else { continue };
            good += 1;
            let text = written(&instance, lives);
            assert_eq!(Instance::read(text.as_bytes(), lives).unwrap(), instance, "{text:?}");
        }
    }
    assert!(good > 1000, "{good}");
}

#[test]
fn what_the_format_cannot_say_is_not_written() {
    let buffer = Buffer::new(0, 1, 8);
    for (other, what) in [
        (buffer.aligned(8), "buffer 1 has an alignment: the format has no place for that"),
        (Buffer { colour: 1, ..buffer }, "buffer 1 has a colour: the format has no place for that"),
    ] {
        let instance = Instance::numbered(Lifetimes::new([buffer, other]).unwrap());
        let error = instance.write(Vec::new(), Lives::HalfOpen).unwrap_err();
        assert_eq!(error.to_string(), what);
    }
    let one = Instance::numbered(Lifetimes::new([buffer]).unwrap());
    let none = Placement::new(&Lifetimes::default(), vec![]).unwrap();
    let error = one.write_placement(&none, Vec::new(), Lives::HalfOpen).unwrap_err();
    assert_eq!(error.to_string(), "the placement has 0 offsets, and there are 1 buffers");
}

#[test]
fn errors_of_the_system_are_told() {
    /// Full from the start, and fails to read.
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }
    let error = Instance::read(io::BufReader::new(Broken), Lives::HalfOpen).unwrap_err();
    assert_eq!(error.to_string(), "the file cannot be read or written: broken");
    let one = read("a,0,1,2").unwrap();
    let error = one.write(&mut [0; 4][..], Lives::HalfOpen).unwrap_err();
    assert!(error.to_string().starts_with("the file cannot be read or written: "), "{error}");
}

#[test]
fn given_files_come_back_as_they_are() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data"));
    for folder in ["planning", "minimalloc"] {
        let Ok(files) = std::fs::read_dir(data.join(folder)) else {
            println!("skipped: there is no {}", data.join(folder).display());
            continue;
        };
        let paths = files.map(|file| file.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|it| it == "csv")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let instance = read(&text).unwrap();
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            assert!(lines.eq(written(&instance, Lives::HalfOpen).lines()), "{}", path.display());
        }
    }
}
