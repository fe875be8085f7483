use gantry_sandbox::{Launch, Sandbox, Spec};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
fn bare(p: &str, args: &[&str]) -> Duration {
    let s = Instant::now();
    let mut c = Command::new(p)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(c.wait().unwrap().success());
    s.elapsed()
}
fn spec() -> Spec {
    let mut s = Spec::new(["/bin/true"]);
    s.limits.cpu_millicores = 2000;
    s
}
async fn ours(sb: &Sandbox) -> (Duration, Duration) {
    let s = Instant::now();
    let mut c = sb.spawn(spec()).await.unwrap();
    let st = s.elapsed();
    let e = c.wait().await;
    assert_eq!(e.exit, gantry_sandbox::Exit::Code(0));
    (st, s.elapsed())
}
fn show(n: &str, mut v: Vec<Duration>) -> f64 {
    v.sort();
    let m = v[v.len() / 2];
    println!(
        "{n:30} best {:7.3} p25 {:7.3} median {:7.3} p90 {:7.3} ms",
        v[0].as_secs_f64() * 1e3,
        v[v.len() / 4].as_secs_f64() * 1e3,
        m.as_secs_f64() * 1e3,
        v[v.len() * 9 / 10].as_secs_f64() * 1e3
    );
    m.as_secs_f64()
}
fn med(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
#[tokio::main]
async fn main() {
    let launcher = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(200);
    let sb = Sandbox::new(Launch { program: launcher.into(), arguments: vec!["sandbox-launcher".into()] }, 64);
    let bw: &[&str] = &[
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--symlink",
        "usr/bin",
        "/bin",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--",
        "/bin/true",
    ];
    for _ in 0..5 {
        bare("/bin/true", &[]);
        ours(&sb).await;
        bare("/usr/bin/bwrap", bw);
    }
    let (mut b, mut o, mut os, mut w) = (vec![], vec![], vec![], vec![]);
    let (mut r, mut rw) = (vec![], vec![]);
    for i in 0..n {
        let (x, (ys, y), z);
        if i % 2 == 0 {
            x = bare("/bin/true", &[]);
            (ys, y) = ours(&sb).await;
            z = bare("/usr/bin/bwrap", bw);
        } else {
            z = bare("/usr/bin/bwrap", bw);
            (ys, y) = ours(&sb).await;
            x = bare("/bin/true", &[]);
        }
        r.push(y.as_secs_f64() / x.as_secs_f64());
        rw.push(y.as_secs_f64() / z.as_secs_f64());
        b.push(x);
        o.push(y);
        os.push(ys);
        w.push(z);
    }
    show("bare", b);
    show("ours (till spawned)", os);
    show("ours", o);
    show("bwrap", w);
    println!("of bare {:.2}  of bwrap {:.2}", med(r), med(rw));
    let mut v = vec![];
    for _ in 0..n {
        v.push(ours(&sb).await.1);
    }
    show("ours in a row", v);
    let mut v = vec![];
    for _ in 0..n {
        v.push(bare("/bin/true", &[]));
    }
    show("bare in a row", v);
    if std::env::args().nth(3).is_some() {
        return;
    }
    let s = Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let sb = sb.clone();
        set.spawn(async move {
            for _ in 0..10 {
                ours(&sb).await;
            }
        });
    }
    while let Some(d) = set.join_next().await {
        d.unwrap();
    }
    println!("64 at once: {:.0}/s", 640.0 / s.elapsed().as_secs_f64());
}
