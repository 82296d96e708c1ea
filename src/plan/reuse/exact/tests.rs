use super::super::super::{Buffer, Lifetimes, Limits};
use super::preorder::Preorder;
use super::search::{Answer, Rules, Search};
use super::sections::Sections;

pub fn read(name: &str) -> Option<Lifetimes> {
    let path = format!("/work/shared/data/{name}.csv");
    let text = std::fs::read_to_string(path).ok()?;
    let buffers = text.lines().skip(1).map(|line| {
        let mut numbers = line.split(',').skip(1).map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Buffer::new(next(), next(), next())
    });
    Some(Lifetimes::new(buffers).unwrap())
}

#[test]
#[ignore]
fn speed() {
    for name in ["A","B","C","D","E", "F"] {
        let l = read(&format!("minimalloc/{name}.1048576")).unwrap();
        let s = Sections::new(&l);
        let cap = if name == "C" { 1039360 } else { 1048576 } / s.unit;
        print!("{name} n={} unit={} parts={:?} load {}: ", l.len(), s.unit, s.parts.iter().map(|p| (p.items.len(), p.sections)).collect::<Vec<_>>(), l.load());
        let part = s.parts.iter().max_by_key(|p| p.items.len()).unwrap();
        for lifting in [true] { for (dominance, symmetry, splitting) in [(true,false,true),(true,true,true)] { let memory=true;
        let rules = Rules { lifting, memory, symmetry, dominance, splitting };
        let start = std::time::Instant::now();
        let mut searches: Vec<_> = Preorder::ALL.iter().map(|p| Search::new(part, p.sort(part), rules)).collect();
        let mut budget = 2 * l.len() as u64;
        let mut spent = 0;
        'o: loop {
            for (i, s) in searches.iter_mut().enumerate() {
                let mut nodes = budget;
                let a = s.fits(cap, &mut nodes, &Limits::none());
                spent += budget - nodes;
                if a != Answer::Unknown {
                    print!(" | {dominance} {symmetry} {splitting}: {a:?} order {i} nodes {spent} {:.3}s", start.elapsed().as_secs_f64());
                    break 'o;
                }
            }
            budget *= 2;
            if spent > 1_000_000 { print!(" | {dominance} {symmetry} {splitting}: unknown {:.2}s", start.elapsed().as_secs_f64()); break; }
        }
        } }
        println!();
    }
}

#[test]
#[ignore]
fn ladder() {
    let name = std::env::var("NAME").unwrap();
    let l = read(&name).unwrap();
    let s = Sections::new(&l);
    let most: u64 = std::env::var("NODES").unwrap().parse().unwrap();
    println!("{name} n={} unit={} parts={:?} load {}", l.len(), s.unit, s.parts.iter().map(|p| (p.items.len(), p.sections, p.load())).collect::<Vec<_>>(), l.load() / s.unit);
    for cap in std::env::var("CAPS").unwrap().split(',') {
        let cap: u64 = cap.parse().unwrap();
        for part in &s.parts {
        if part.items.len() < 5 { continue; }
        let start = std::time::Instant::now();
        let mut searches: Vec<_> = Preorder::ALL.iter().map(|p| Search::new(part, p.sort(part), Rules::ALL)).collect();
        let mut budget = 2 * l.len() as u64;
        let mut spent = 0;
        'o: loop {
            for (i, s) in searches.iter_mut().enumerate() {
                let mut nodes = budget;
                let a = s.fits(cap, &mut nodes, &Limits::none());
                spent += budget - nodes;
                if a != Answer::Unknown {
                    println!("{cap} ({:.4}): {a:?} order {i} nodes {spent} {:.3}s", cap as f64 * s_unit(&l) / l.load() as f64, start.elapsed().as_secs_f64());
                    break 'o;
                }
            }
            budget *= 2;
            if spent > most { println!("{cap}: unknown {:.2}s", start.elapsed().as_secs_f64()); break; }
        }
        }
    }
}
fn s_unit(l: &Lifetimes) -> f64 { Sections::new(l).unit as f64 }

#[test]
#[ignore]
fn planner() {
    use super::super::super::Planner;
    let seconds = std::env::var("SECONDS").unwrap().parse().unwrap();
    for name in std::env::var("NAME").unwrap().split(',') {
        let l = read(name).unwrap();
        let start = std::time::Instant::now();
        let p = super::Exact::default().plan(&l, &Limits::within(std::time::Duration::from_secs(seconds))).unwrap();
        println!("{name} {} {:.4} proven {} {:.3}s", p.placement.bytes(), p.placement.bytes() as f64 / l.load() as f64, p.proven, start.elapsed().as_secs_f64());
    }
}
