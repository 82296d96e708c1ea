//! Checks that a written file reads back equal, and that invalid files are refused with the number
//! of the line.

use std::path::Path;

use super::*;
use crate::{BestFit, Buffer, Limits, Planner, random};
use std::io;

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
    assert_eq!(written(&closed, Lives::Closed), "id,start,end,size\na,1,2,1024\nb,4,4,1\n");
    assert_eq!(written(&closed, Lives::HalfOpen), "id,lower,upper,size\na,1,3,1024\nb,4,5,1\n");
}

#[test]
fn written_instances_are_read_back() {
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
        // Without the last field, the lines equal the lines of the file without offsets.
        let (lines, offsets): (Vec<_>, Vec<_>) =
            solution.lines().filter_map(|line| line.rsplit_once(',')).unzip();
        assert_eq!(lines, written(&instance, Lives::HalfOpen).lines().collect::<Vec<_>>());
        let offsets: Vec<u64> = offsets[1..].iter().map(|offset| offset.parse().unwrap()).collect();
        assert_eq!(offsets, planned.placement.offsets());
    }
}

/// Buffers b and a of MiniMalloc's own tests, under other names.
#[test]
fn columns_come_in_any_order_and_under_all_names() {
    let plain = read("id,lower,upper,size\n1,6,12,18\n0,5,10,15\n").unwrap();
    for text in [
        "lower,size,id,upper\n6,18,1,12\n5,15,0,10\n",
        "begin,size,buffer,upper\n6,18,1,12\n5,15,0,10\n",
        "start,size,buffer_id,upper\n6,18,1,12\n5,15,0,10\n",
        // The column `end` has the last instant.
        "start,size,buffer,end\n6,18,1,11\n5,15,0,9\n",
        " Size ,ID,Upper,LOWER\r\n18,1, 12,6\r\n15,0,10 ,5\r\n",
        "size,alignment,gaps,hint,offset,id,lower,upper\n18,,,,,1,6,12\n15,1,,,,0,5,10\n",
    ] {
        assert_eq!(read(text).unwrap(), plain, "{text}");
    }
    // A file with a column `end` gives the same instance with both values of `Lives`.
    let closed = Instance::read(&b"id,start,end,size\n1,6,11,18\n0,5,9,15"[..], Lives::Closed);
    assert_eq!(closed.unwrap(), plain);
    let as_lower = Instance::read(&b"id,lower,upper,size\n1,6,11,18\n0,5,9,15"[..], Lives::Closed);
    assert_eq!(as_lower.unwrap(), plain);
}

#[test]
fn alignments_gaps_and_hints_are_read_and_written() {
    let text = "start,size,buffer,upper,alignment,gaps,offset\n\
                6,18,1,12,2,7-9 ,4\n5,15,0,15,6,12-14@2:13 9-11,\n4,0,z,5,,,0\n";
    let instance = read(text).unwrap();
    let lifetimes = instance.lifetimes();
    let aligns: Vec<u64> = lifetimes.buffers().iter().map(|it| it.align).collect();
    assert_eq!(aligns, [2, 6, 1]);
    assert_eq!(lifetimes.gaps(0), [Gap::new(7, 9)]);
    assert_eq!(lifetimes.gaps(1), [Gap::new(9, 11), Gap { kept: 2..13, ..Gap::new(12, 14) }]);
    assert_eq!([0, 1, 2].map(|i| lifetimes.hint(i)), [Some(4), None, Some(0)]);
    assert_eq!(
        written(&instance, Lives::HalfOpen),
        "id,lower,upper,size,alignment,gaps,hint\n\
         1,6,12,18,2,7-9,4\n0,5,15,15,6,9-11 12-14@2:13,\nz,4,5,0,1,,0\n"
    );
    assert_eq!(
        written(&instance, Lives::Closed),
        "id,start,end,size,alignment,gaps,hint\n\
         1,6,11,18,2,7-8,4\n0,5,14,15,6,9-10 12-13@2:13,\nz,4,4,0,1,,0\n"
    );
    // A buffer with both an offset and a hint gets the offset as its hint.
    let both = read("id,lower,upper,size,offset,hint\na,0,1,2,7,9\nb,0,1,2,,9\n").unwrap();
    assert_eq!([0, 1].map(|i| both.lifetimes().hint(i)), [Some(7), Some(9)]);
}

/// Random lives, alignments, gaps and hints: reading a written file gives the same instance, with
/// both values of `Lives`.
#[test]
fn all_that_can_be_said_comes_back() {
    let mut rng = remat_rng::SplitMix64::new(5);
    for _ in 0..300 {
        let buffers = (0..rng.below(6)).map(|_| {
            let lower = rng.below(10) as u64;
            let buffer = Buffer::new(lower, lower + 1 + rng.below(9) as u64, rng.below(50) as u64);
            buffer.aligned(1 + rng.below(2) as u64 * rng.below(64) as u64)
        });
        let buffers: Vec<Buffer> = buffers.collect();
        let mut lifetimes = Lifetimes::new(buffers.clone()).unwrap();
        for (number, buffer) in buffers.iter().enumerate() {
            let start = rng.next() % (buffer.size + 1);
            let kept = [0..0, start..buffer.size][rng.below(2)].clone();
            // A gap that keeps no bytes is written without a range of bytes, and reads back with
            // the range `0..0`.
            let kept = if kept.is_empty() { 0..0 } else { kept };
            let gap = Gap { lower: buffer.lower, upper: buffer.lower + 1, kept };
            if rng.below(2) == 0 {
                lifetimes = lifetimes.with_gaps(number, [gap]).unwrap();
            }
            if rng.below(2) == 0 {
                lifetimes = lifetimes.with_hint(number, rng.next());
            }
        }
        let instance = Instance::numbered(lifetimes);
        for lives in [Lives::HalfOpen, Lives::Closed] {
            let text = written(&instance, lives);
            assert_eq!(Instance::read(text.as_bytes(), lives).unwrap(), instance, "{text}");
            // The column `end` has the last instant even if the reader is called with
            // `Lives::HalfOpen`.
            if lives == Lives::Closed {
                assert_eq!(read(&text).unwrap(), instance, "{text}");
            }
        }
    }
}

#[test]
fn invalid_files_are_refused_with_their_line() {
    let large = "18446744073709551616";
    let error = |bytes: &[u8], lives| Instance::read(bytes, lives).unwrap_err().to_string();
    let columns = "choose one of id, buffer, buffer_id, lower, start, begin, upper, end, size";
    for (bytes, start) in [
        ("", "the file is empty"),
        ("\n \r\n\n", "the file is empty"),
        (
            "name,start,end,size\n",
            &format!("line 1, column 1: \"name\": no column has this name: {columns}"),
        ),
        ("\nid;lower;upper;size\na;0;1;2", "line 2, column 1: \"id;lower;upper;size\": no column"),
        ("id,lower,upper,size,colour\n", "line 1, column 5: \"colour\": no column has this name"),
        (
            "id,lower,upper,size,start\n",
            "line 1, column 5: \"start\": column 2 (lower) has the same",
        ),
        ("id,lower,upper,size,end\n", "line 1, column 5: \"end\": column 3 (upper) has the same"),
        ("id,lower,size\n", "line 1 is \"id,lower,size\", which has no column upper: id, lower"),
        (
            "lower,upper,size,offset\n",
            "line 1 is \"lower,upper,size,offset\", which has no column id",
        ),
        (
            "id,lower,upper,size\na,0,1,2\na,1,2",
            "line 3 has 3 fields, expected 4: id,lower,upper,size",
        ),
        ("id,lower,upper,size\na,0,1,2,3", "line 2 has 5 fields"),
        (
            "id,lower,upper,size\na,0,1,2\nid,lower,upper,size",
            "line 3, column 2 (lower) is \"lower\": expected a whole number from 0 to below 2^64",
        ),
        (
            "size,id,lower,upper\nx,a,0,1",
            "line 2, column 1 (size) is \"x\": expected a whole number",
        ),
        ("a,-1,1,2", "line 1, column 2 (lower) is \"-1\""),
        ("a,0,+1,2", "line 1, column 3 (upper) is \"+1\""),
        ("a,0,1,", "line 1, column 4 (size) is \"\""),
        ("a,0,1,1e6", "line 1, column 4 (size) is \"1e6\""),
        (
            &format!("a,0,1,2\nb,0,{large},2"),
            "line 2, column 3 (upper) is \"18446744073709551616\"",
        ),
        (
            &format!("a,0,1,{}", "9".repeat(60_000)),
            &format!("line 1, column 4 (size) is \"{}...\"", "9".repeat(40)),
        ),
        (
            "a,0,1,2\n\nb,5,5,2",
            "line 3, column 3 (upper) is \"5\": the buffer lives from 5 to 5, excluded",
        ),
        ("a,5,4,2", "line 1, column 3 (upper) is \"4\": the buffer lives from 5 to 4, excluded"),
        (
            "id,start,end,size\na,5,4,2",
            "line 2, column 3 (end) is \"4\": the buffer lives from 5 to 4, included",
        ),
        (
            "a,0,1,2\nb,0,1,2\n\nb,0,1,2\na,0,1,2",
            "line 4, column 1 (id) is \"b\": the buffer of line 2 has the same id",
        ),
        (
            "size,id,lower,upper\n1,a,0,1\n1,a,0,1",
            "line 3, column 2 (id) is \"a\": the buffer of line 2",
        ),
        (
            "a,0,1,18446744073709551615\nb,2,3,1",
            "line 2, column 4 (size) is \"1\": all buffers so far, alignments included, have 2^64 bytes",
        ),
        (
            "id,lower,upper,size,alignment\na,0,1,9,18446744073709551615\n",
            "line 2, column 4 (size) is \"9\": all buffers so far",
        ),
        (
            "id,lower,upper,size,alignment\na,0,1,2,0\n",
            "line 2, column 5 (alignment) is \"0\": expected 1 or more",
        ),
        (
            "id,lower,upper,size,alignment\na,0,1,2,-8\n",
            "line 2, column 5 (alignment) is \"-8\": expected a whole",
        ),
        (
            "id,lower,upper,size,offset\na,0,1,2,x\n",
            "line 2, column 5 (offset) is \"x\": expected a whole number",
        ),
        (
            "id,lower,upper,size,hint\na,0,1,2,-1\n",
            "line 2, column 5 (hint) is \"-1\": expected a whole number",
        ),
        (
            "id,lower,upper,size,gaps\na,0,9,2,1-2-3\n",
            "line 2, column 5 (gaps) is \"1-2-3\": \"1-2-3\" is not a gap: write for example 7-9 or 7-9@0:16",
        ),
        (
            "gaps,id,lower,upper,size\nA-B,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"A-B\": \"A-B\" is not a gap",
        ),
        (
            "gaps,id,lower,upper,size\n1-2 4,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"1-2 4\": \"4\" is not a gap",
        ),
        (
            "gaps,id,lower,upper,size\n1-2@1,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"1-2@1\": \"1-2@1\" is not",
        ),
        (
            "gaps,id,lower,upper,size\n3-6 5-8,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"3-6 5-8\": the buffer has a gap 5-8, which overlaps another gap",
        ),
        (
            "gaps,id,start,end,size\n3-6 6-8,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"3-6 6-8\": the buffer has a gap 6-8, which overlaps another gap",
        ),
        (
            "gaps,id,lower,upper,size\n6-3,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"6-3\": the buffer has a gap 6-3, which is empty",
        ),
        (
            "gaps,id,lower,upper,size\n6-10,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"6-10\": the buffer has a gap 6-10, which is not within the life of the \
             buffer",
        ),
        (
            "gaps,id,lower,upper,size\n6-7@1:3,a,0,9,2\n",
            "line 2, column 1 (gaps) is \"6-7@1:3\": the buffer has a gap 6-7, which keeps bytes",
        ),
        (&"x".repeat(1 << 17), "line 1 has 65536 bytes or more"),
        (&format!("a,0,1,2\n{}", ",".repeat(1 << 20)), "line 2 has 65536 bytes or more"),
        (
            &"\n".repeat(2 << 20),
            "line 1048577: more than 1048576 bytes of empty lines end here; remove empty lines",
        ),
        (
            &format!("a,0,1,2\n{}b,0,1,2", " \r\n".repeat(1 << 20)),
            "line 349527: more than 1048576 bytes of empty lines end here; remove empty lines",
        ),
    ] {
        let found = error(bytes.as_bytes(), Lives::HalfOpen);
        assert!(found.starts_with(start), "{found}\n{start}");
    }
    assert_eq!(error(b"a,0,1,2\n\xff,0,1,2\n", Lives::HalfOpen), "line 2 is not UTF-8 text");
    let end = u64::MAX;
    let found = error(format!("a,0,{end},2").as_bytes(), Lives::Closed);
    assert!(
        found.starts_with("line 1, column 3 (upper) is \"18446744073709551615\": this is the last"),
        "{found}"
    );
    assert!(Instance::read(format!("a,0,{end},2").as_bytes(), Lives::HalfOpen).is_ok());
}

/// Reads a file that stands for a pipe without an end.
#[test]
fn buffers_and_gaps_without_end_are_an_error_at_last() {
    struct Lines {
        next: u64,
        line: fn(u64) -> String,
    }
    impl Read for Lines {
        fn read(&mut self, mut to: &mut [u8]) -> io::Result<usize> {
            let mut count = 0;
            while to.len() > 1 << 15 {
                let line = (self.line)(self.next);
                to[..line.len()].copy_from_slice(line.as_bytes());
                (to, self.next) = (&mut to[line.len()..], self.next + 1);
                count += line.len();
            }
            Ok(count)
        }
    }
    let gapped = |next| match next {
        0 => "id,lower,upper,size,gaps\n".to_owned(),
        _ => format!("{next},0,4,1,1-2\n"),
    };
    let lines = Lines { next: 0, line: gapped };
    let error = Instance::read(io::BufReader::with_capacity(1 << 17, lines), Lives::HalfOpen);
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "line 4194306: there are more than 4194304 buffers, the most that can be read"
    );
}

/// Reads random bytes: they are accepted or refused without a panic. Each accepted instance is
/// written and read again.
#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = remat_rng::SplitMix64::new(7);
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
fn instances_the_format_cannot_express_are_not_written() {
    let buffer = Buffer::new(0, 1, 8);
    let coloured = Buffer { colour: 1, ..buffer };
    let instance = Instance::numbered(Lifetimes::new([buffer, coloured]).unwrap());
    let error = instance.write(Vec::new(), Lives::HalfOpen).unwrap_err();
    assert_eq!(error.to_string(), "buffer 1 has a colour, which the format cannot store");
    for (ids, what) in [
        (vec!["a"], "there are 1 ids, but 2 buffers"),
        (vec!["a", "a"], "two buffers have the id \"a\""),
        (vec!["a", "b,c"], "\"b,c\" is not a valid id: remove commas, line ends, and spaces"),
        (vec!["a", " b"], "\" b\" is not a valid id"),
    ] {
        let lifetimes = Lifetimes::new([buffer; 2]).unwrap();
        let ids = ids.into_iter().map(str::to_owned).collect();
        let error = Instance::named(ids, lifetimes).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
    let one = Instance::numbered(Lifetimes::new([buffer]).unwrap());
    let none = Placement::new(&Lifetimes::default(), vec![]).unwrap();
    let error = one.write_placement(&none, Vec::new(), Lives::HalfOpen).unwrap_err();
    assert_eq!(error.to_string(), "the placement has 0 offsets, but there are 1 buffers");
}

#[test]
fn errors_of_the_system_are_told() {
    /// Reader and writer that always fail.
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
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
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
