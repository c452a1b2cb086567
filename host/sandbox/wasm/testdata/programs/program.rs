// Collections, text and floating point, n times over.
use std::collections::{BTreeMap, HashMap};

fn main() {
    let n: u32 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut seed: u32 = 1;
    let mut next = || {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        seed
    };
    for _ in 0..n {
        let mut v: Vec<u32> = (0..20_000).map(|_| next()).collect();
        v.sort();
        let mut words: BTreeMap<String, u32> = BTreeMap::new();
        let mut hashed: HashMap<u32, u32> = HashMap::new();
        for x in &v {
            *words.entry(format!("w{}", x % 500)).or_insert(0) += 1;
            *hashed.entry(x % 1000).or_insert(0) += 1;
        }
        let sum: u64 = hashed.values().map(|&x| x as u64 * x as u64).sum();
        let mut bodies = [[1.0f64, 2.0, 0.1], [2.0, -1.0, 0.3], [-3.0, 0.5, -0.2]];
        for _ in 0..20_000 {
            for i in 0..3 {
                let j = (i + 1) % 3;
                let d = bodies[i][0] - bodies[j][0];
                let force = d / (d * d + bodies[i][1] * bodies[i][1] + 1.0).sqrt();
                bodies[i][2] -= force * 0.001;
                bodies[i][0] += bodies[i][2] * 0.01;
            }
        }
        println!("{} {} {} {:.6}", v[10_000], words["w17"], sum, bodies[0][0]);
    }
}
