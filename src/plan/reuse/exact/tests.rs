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

#[test]
#[ignore]
fn noise() {
    use crate::rng::SplitMix64;
    let l = read(&std::env::var("NAME").unwrap()).unwrap();
    let s = Sections::new(&l);
    let get = |n: &str| std::env::var(n).unwrap().parse::<u64>().unwrap();
    let part = s.parts.iter().max_by_key(|p| p.items.len()).unwrap();
    let mut rng = SplitMix64::new(1);
    let spread = get("SPREAD") as f64;
    for cap in std::env::var("CAPS").unwrap().split(',') {
        let cap = cap.parse().unwrap();
        for p in Preorder::ALL {
            let start = std::time::Instant::now();
            let mut found = 0; let mut spent = 0; let mut each = vec![];
            for _ in 0..get("TRIES") {
                let order = p.sort(part);
                let mut keyed: Vec<(f64, usize)> = order.iter().enumerate().map(|(i, &o)| (i as f64 + spread * (rng.next() >> 11) as f64 / (1u64 << 53) as f64, o)).collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                let mut search = Search::new(part, keyed.into_iter().map(|k| k.1).collect(), Rules::ALL);
                let mut nodes = get("NODES");
                let a = search.fits(cap, &mut nodes, &Limits::none());
                spent += get("NODES") - nodes;
                if a == Answer::Placed { found += 1; each.push(get("NODES") - nodes); }
            }
            println!("{cap} {p:?}: {found} of {} with {spent} nodes {:?}, {:.2}s", get("TRIES"), each, start.elapsed().as_secs_f64());
        }
    }
}

#[test]
#[ignore]
fn portfolio() {
    let seconds = std::env::var("SECONDS").unwrap().parse().unwrap();
    let limits = Limits::within(std::time::Duration::from_secs(seconds));
    for name in std::env::var("NAME").unwrap().split(',') {
        let start = std::time::Instant::now();
        let l = if let Some(l) = read(name) { l } else {
            let mut rng = crate::rng::SplitMix64::new(1);
            Lifetimes::new((0..name.parse().unwrap()).map(|i| { let lower = i as u64; Buffer::new(lower, lower + 1 + rng.below(200) as u64 * rng.below(20) as u64, 1 + rng.below(1 << 20) as u64) })).unwrap()
        };
        println!("{name}: {} load {} {:?}", l.len(), l.load(), start.elapsed());
        let s = Sections::new(&l);
        println!("largest part {:?} of {} unit {}", s.parts.iter().map(|p| p.items.len()).max(), s.parts.len(), s.unit);
        let start = std::time::Instant::now();
        for a in super::super::Portfolio::default().answers(&l, &limits).unwrap() {
            println!("{name} {}: {:?} {:?}", a.planner, a.time, a.planned.map(|p| p.placement.bytes() as f64 / l.load() as f64));
        }
        println!("{name} {:?}", start.elapsed());
    }
}
