//! Against a server of a few lines on the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

const CONTENT: &[u8] = b"GGUF and then some";

/// Serves `/o/r/resolve/main/dir/x.gguf`; remembers the authorisation headers it saw.
struct Server {
    endpoint: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(etag: String, status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (etag, log) = (etag.clone(), log.clone());
                thread::spawn(move || answer(stream, &etag, status, &log));
            }
        });
        Self { endpoint, seen }
    }
}

fn answer(stream: TcpStream, etag: &str, status: u16, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.by_ref().take(8192).read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        head.iter().find_map(|l| l.to_lowercase().strip_prefix(name).map(str::to_owned))
    };
    log.lock().unwrap().push(header("authorization: ").unwrap_or_default());
    let found = head[0].starts_with("GET /o/r/resolve/main/dir/x.gguf ");
    let status = if found { status } else { 404 };
    let range = header("range: bytes=").unwrap_or_default();
    let (from, to) = range.split_once('-').unwrap_or(("0", ""));
    let from: usize = from.parse().unwrap_or(0);
    let to: usize = to.parse().map_or(CONTENT.len(), |to: usize| to + 1);
    let body = if status == 206 { &CONTENT[from..to] } else { b"" };
    let mut stream = stream;
    let reply = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\ncontent-range: bytes {from}-{}/{}\r\netag: \"{etag}\"\r\n\
         x-repo-commit: abc\r\nconnection: close\r\n\r\n",
        body.len(),
        to - 1,
        CONTENT.len()
    );
    drop(stream.write_all(reply.as_bytes()).and_then(|()| stream.write_all(body)));
}

fn sha() -> String {
    let mut hasher = Sha256::new();
    hasher.update(CONTENT);
    hex(&hasher)
}

fn settings(cache: &Path, server: &Server) -> Settings {
    Settings {
        cache: cache.to_path_buf(),
        token: Some("secret".into()),
        endpoint: Some(server.endpoint.clone()),
        offline: false,
    }
}

fn file(name: &str) -> HfFile {
    HfFile { repo: "o/r".into(), file: name.into() }
}

#[test]
fn a_file_is_downloaded_once_with_the_token() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(sha(), 206);
    let mut settings = settings(home.path(), &server);
    let path = fetch_with(&settings, &file("dir/x.gguf"), home.path(), &mut ()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    let requests = server.seen.lock().unwrap().clone();
    assert!(requests.iter().all(|token| token == "bearer secret"), "{requests:?}");
    // From now on the network is not needed.
    settings.offline = true;
    assert_eq!(fetch_with(&settings, &file("dir/x.gguf"), home.path(), &mut ()).unwrap(), path);
    assert_eq!(server.seen.lock().unwrap().len(), requests.len());
    let error = fetch_with(&settings, &file("dir/y.gguf"), home.path(), &mut ()).unwrap_err();
    assert!(matches!(error, HubError::HfOffline { .. }), "{error}");
}

#[test]
fn an_interrupted_download_is_resumed() {
    let home = tempfile::tempdir().unwrap();
    let blobs = home.path().join("models--o--r/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(format!("{}.part", sha())), &CONTENT[..5]).unwrap();
    let server = Server::start(sha(), 206);
    let path =
        fetch_with(&settings(home.path(), &server), &file("dir/x.gguf"), home.path(), &mut ())
            .unwrap();
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
}

#[test]
fn what_came_must_be_what_was_announced() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start("0".repeat(64), 206);
    let settings = settings(home.path(), &server);
    for _ in 0..2 {
        // Twice: the wrong file must not be found in the cache afterwards.
        let error = fetch_with(&settings, &file("dir/x.gguf"), home.path(), &mut ()).unwrap_err();
        assert!(matches!(error, HubError::Checksum { .. }), "{error}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let gated = Server::start(sha(), 401);
    let error =
        fetch_with(&settings(home.path(), &gated), &file("dir/x.gguf"), home.path(), &mut ())
            .unwrap_err();
    assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    let error = fetch_with(&settings(home.path(), &gated), &file("no.gguf"), home.path(), &mut ())
        .unwrap_err();
    assert!(error.to_string().contains("no such repository or file"), "{error}");
    // A port nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut nowhere = settings(home.path(), &gated);
    nowhere.endpoint = Some(format!("http://127.0.0.1:{port}"));
    let error = fetch_with(&nowhere, &file("x.gguf"), home.path(), &mut ()).unwrap_err();
    assert!(
        error.to_string().contains("HF_ENDPOINT") && !error.to_string().contains('\n'),
        "{error}"
    );
}

#[test]
fn the_usual_variables_are_honoured() {
    let read = |vars: &'static [(&str, &str)]| {
        Settings::read(move |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into()))
    };
    let settings = read(&[
        ("HF_HOME", "/h"),
        ("HF_TOKEN", "t"),
        ("HF_ENDPOINT", "http://e/"),
        ("HF_HUB_OFFLINE", "TRUE"),
    ]);
    let expected = Settings {
        cache: "/h/hub".into(),
        token: Some("t".into()),
        endpoint: Some("http://e".into()),
        offline: true,
    };
    assert_eq!(settings.unwrap(), expected);
    assert_eq!(read(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")]).unwrap().cache, Path::new("/c"));
    let home = read(&[("HOME", "/nobody"), ("HF_HUB_OFFLINE", "0")]).unwrap();
    assert_eq!(
        (home.cache.as_path(), home.offline),
        (Path::new("/nobody/.cache/huggingface/hub"), false)
    );
    assert!(matches!(read(&[]), Err(HubError::NoHome)));
}
