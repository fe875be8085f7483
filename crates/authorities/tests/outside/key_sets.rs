//! Key sets behind URLs and in files.

use std::time::Duration;

use gantry_authorities::{AuthorityClient, KeySetFile, KeySetUrl};
use ports::key_source::KeySource as _;

use crate::authority::{Authority, Behaviour, nobody};

const KEY_SET_BYTES_MAX: usize = 262_144;

fn source(url: &str) -> KeySetUrl {
    KeySetUrl::new(&AuthorityClient::new().unwrap(), url).unwrap()
}

#[tokio::test]
async fn a_key_set_is_handed_over_as_it_is() {
    let authority = Authority::start(Behaviour::text("{\"keys\": [")).await;
    let source = source(&authority.url("/.well-known/jwks.json"));
    assert_eq!(source.fetch().await.unwrap(), b"{\"keys\": [");
    let asked = authority.asked();
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("GET", "/.well-known/jwks.json"));
    assert!(!asked[0].headers.contains_key("authorization"));
    authority.behave(Behaviour::text("rotated"));
    assert_eq!(source.fetch().await.unwrap(), b"rotated");
}

#[tokio::test]
async fn the_longest_key_set_is_taken_and_one_byte_more_is_not() {
    let authority = Authority::start(Behaviour::Answer(200, vec![b' '; KEY_SET_BYTES_MAX])).await;
    let source = source(&authority.url("/keys"));
    assert_eq!(source.fetch().await.unwrap().len(), KEY_SET_BYTES_MAX);
    authority.behave(Behaviour::Answer(200, vec![b' '; KEY_SET_BYTES_MAX + 1]));
    let error = source.fetch().await.unwrap_err().to_string();
    assert_eq!(error, "the key set cannot be had: the answer is longer than 262144 bytes");
}

#[tokio::test]
async fn only_status_200_is_an_answer() {
    let authority = Authority::start(Behaviour::text("")).await;
    let source = source(&authority.url("/keys"));
    for status in [201, 204, 206, 304, 400, 401, 404, 410, 500, 503] {
        authority.behave(Behaviour::Answer(status, if matches!(status, 204 | 304) { vec![] } else { b"{}".to_vec() }));
        let error = source.fetch().await.unwrap_err().to_string();
        assert_eq!(error, format!("the key set cannot be had: the answer has status {status}"));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Authority::start(Behaviour::text("{\"keys\": []}")).await;
    let authority = Authority::start(Behaviour::Redirect(elsewhere.url("/keys"))).await;
    let error = source(&authority.url("/keys")).fetch().await.unwrap_err().to_string();
    assert_eq!(error, "the key set cannot be had: the answer has status 307");
    assert_eq!((authority.count(), elsewhere.count()), (1, 0));
}

#[tokio::test]
async fn silence_is_waited_for_only_so_long() {
    let authority = Authority::start(Behaviour::Silence).await;
    let source = source(&authority.url("/keys")).within(Duration::from_millis(60));
    let error = source.fetch().await.unwrap_err().to_string();
    assert_eq!(error, "the key set cannot be had: no answer within 60 ms");
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_without_its_address() {
    let (_kept, address) = nobody();
    let error = source(&format!("http://{address}/keys")).fetch().await.unwrap_err().to_string();
    assert_eq!(error, "the key set cannot be had: no connection could be made");
}

#[tokio::test]
async fn a_file_is_read_anew_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let source = KeySetFile::new(&path);
    let missing = source.fetch().await.unwrap_err().to_string();
    for text in ["first", "second"] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(source.fetch().await.unwrap(), text.as_bytes());
    }
    std::fs::write(&path, vec![b' '; KEY_SET_BYTES_MAX]).unwrap();
    assert_eq!(source.fetch().await.unwrap().len(), KEY_SET_BYTES_MAX);
    std::fs::write(&path, vec![b' '; KEY_SET_BYTES_MAX + 1]).unwrap();
    let huge = source.fetch().await.unwrap_err().to_string();
    let a_folder = KeySetFile::new(folder.path()).fetch().await.unwrap_err().to_string();

    assert_eq!(missing, "the key set cannot be had: the file cannot be read: entity not found");
    assert_eq!(huge, "the key set cannot be had: the file is longer than 262144 bytes");
    assert_eq!(a_folder, "the key set cannot be had: it is not a regular file");
}
