use super::*;
use crate::lab::plot::test_xml;
use remat_plan::{BestFit, Lifetimes, Limits, Planner, random};

fn placed(lifetimes: &Lifetimes, kind: fn(usize) -> Option<Kind>) -> Blocks {
    let placement = BestFit.plan(lifetimes, &Limits::none()).unwrap().placement;
    let places = lifetimes.buffers().iter().zip(placement.offsets()).enumerate();
    let block = |(i, (buffer, &offset)): (usize, (&remat_plan::Buffer, &u64))| Block {
        name: format!("b{i}"),
        kind: kind(i),
        time: buffer.lower..buffer.upper,
        offset,
        size: buffer.size,
    };
    Blocks {
        title: "a <step>".into(),
        time: "time (ops)".into(),
        size: placement.bytes(),
        load: lifetimes.load(),
        budget: None,
        blocks: places.map(block).collect(),
    }
}

#[test]
fn a_few_blocks_have_names_and_edges() {
    let buffers = [(0, 4, 300), (0, 2, 200), (2, 4, 200)];
    let buffers = buffers.map(|(from, to, size)| remat_plan::Buffer::new(from, to, size));
    let lifetimes = Lifetimes::new(buffers).unwrap();
    let picture = test_xml::read(&plot(&placed(&lifetimes, |_| None)).unwrap());
    for text in
        ["a &lt;step&gt;", "address (B)", "time (ops)", "b0", "b1", "b2", "size = load", "buffer"]
    {
        assert!(picture.texts.iter().any(|found| found == text), "{text}: {:?}", picture.texts);
    }
    assert!(!picture.texts.iter().any(|found| found == "workspace" || found == "load"));
}

#[test]
fn the_legend_names_the_kinds_of_blocks() {
    let kinds = |i| {
        Some(match i % 3 {
            0 => Kind::Workspace,
            1 => Kind::Class(Class::Kept),
            _ => Kind::Class(Class::Transient),
        })
    };
    let mut blocks = placed(&random::step(1, 100), kinds);
    blocks.budget = Some(blocks.size * 2);
    blocks.size += 1;
    let picture = test_xml::read(&plot(&blocks).unwrap());
    for text in ["workspace", "kept", "transient", "budget", "size", "load"] {
        assert!(picture.texts.iter().any(|found| found == text), "{text}");
    }
    assert!(!picture.texts.iter().any(|found| found == "input" || found == "buffer"));
}

#[test]
fn thousands_of_blocks_make_a_small_picture() {
    let svg = plot(&placed(&random::step(1, 30_000), |i| {
        Some(if i % 2 == 0 { Kind::Workspace } else { Kind::Class(Class::Transient) })
    }));
    let svg = svg.unwrap();
    assert!(svg.len() < 3_000_000, "{}", svg.len());
    assert!(!test_xml::read(&svg).texts.iter().any(|text| text == "b0"));
}

#[test]
fn neighbours_differ_in_shade() {
    let blocks = placed(&random::step(2, 2000), |_| None);
    let blocks: Vec<&Block> = blocks.blocks.iter().collect();
    let shades = shades(&blocks);
    let (mut touching, mut alike) = (0, 0);
    for (i, a) in blocks.iter().enumerate() {
        for (j, b) in blocks.iter().enumerate() {
            if a.time.start <= b.time.start && b.time.start < a.time.end {
                // Blocks that touch must differ in shade, unless they begin at the same instant.
                let touch = a.offset + a.size == b.offset || b.offset + b.size == a.offset;
                assert!(
                    !touch || shades[i] != shades[j] || a.time.start == b.time.start,
                    "{i} {j}"
                );
            }
            let overlap = a.offset < b.offset + b.size && b.offset < a.offset + a.size;
            if a.time.end == b.time.start && overlap {
                touching += 1;
                alike += usize::from(shades[i] == shades[j]);
            }
        }
    }
    assert!(touching > 100 && alike < touching / 20, "{alike} of {touching}");
    assert!((0..SHADES).all(|shade| shades.contains(&shade)));
}

#[test]
fn nothing_is_no_picture() {
    assert_eq!(plot(&Blocks::default()), Err(PlotError::Nothing("buffer has bytes")));
}
