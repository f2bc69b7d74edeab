//! What this needs of HTTP that object_store does not hand on: when an answer was given, when a server wants to be
//! asked again, and which statuses pass.
//!
//! A client that stands before object_store's looks at each answer. What passes through it unchanged is an answer that
//! object_store knows a meaning for; any other failure becomes a [`Refused`] in the error's chain of causes.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{Stream, StreamExt};
use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// How long a server may want one to wait, at most, before it is asked again; who wants more is asked after this.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Bytes of what a server says with a failure that are kept.
const WORDS: usize = 4096;

/// When an answer was given, by the server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered(pub(crate) DateTime<Utc>);

/// An answer that is none.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the server answered with {status}{reason}{}{body}", if body.is_empty() { "" } else { ": " })]
pub(crate) struct Refused {
    pub(crate) status: u16,
    reason: String,
    body: String,
    /// How long it wants not to be asked.
    pub(crate) wait: Duration,
}

impl Refused {
    /// What stands in an error's chain of causes.
    pub(crate) fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refused> {
        causes(error).find_map(|cause| cause.downcast_ref())
    }

    /// Whether the same request may succeed later.
    pub(crate) fn passes(&self) -> bool {
        self.status >= 500 || self.status == 429 || self.status == 408
    }
}

/// An error and its causes.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// Of a client: the time to connect stays, 5 s. The time for the whole answer, 30 s of itself, would end large ranges
/// over slow links each time anew. A limit for silence stands in its place.
pub(crate) fn client_options(silence: Duration) -> ClientOptions {
    ClientOptions::new().with_timeout_disabled().with_read_timeout(silence)
}

/// S3 by the variables of an environment, and the endpoint that these name.
pub(crate) fn s3(
    variables: impl Iterator<Item = (String, String)>,
    client: ClientOptions,
) -> (AmazonS3Builder, String) {
    let mut s3 = AmazonS3Builder::new().with_client_options(client);
    let mut decided = false;
    for (name, value) in variables.filter(|(name, _)| name.starts_with("AWS_")) {
        decided |= name == "AWS_ALLOW_HTTP";
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            s3 = s3.with_config(key, value);
        }
    }
    let named = |key| s3.get_config_value(&key);
    let endpoint = named(AmazonS3ConfigKey::S3Endpoint).or_else(|| named(AmazonS3ConfigKey::Endpoint));
    let endpoint = endpoint.unwrap_or_default();
    if !decided && endpoint.starts_with("http:") {
        s3 = s3.with_allow_http(true);
    }
    (s3, endpoint)
}

/// Makes clients that look at answers.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut answer = self.0.execute(request).await?;
        let status = answer.status();
        let text = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let date = text("date").and_then(date);
        // object_store adds one to the end of a range.
        let last =
            text("content-range").and_then(|range| range.split_once('-')?.1.split('/').next()?.trim().parse().ok());
        if last == Some(u64::MAX) {
            let reason = " and a range that ends where no file does".to_owned();
            let refused = Refused { status: status.as_u16(), reason, body: String::new(), wait: Duration::ZERO };
            return Err(HttpError::new(HttpErrorKind::Unknown, refused));
        }
        // object_store has words of its own for these: permissions, absence, another version.
        if !(status.is_server_error() || matches!(status.as_u16(), 408 | 416 | 429)) {
            if let Some(date) = date {
                answer.extensions_mut().insert(Answered(date));
            }
            return Ok(answer);
        }
        let wait = text("retry-after").and_then(|value| wait(value, date.unwrap_or_else(Utc::now))).unwrap_or_default();
        let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
        let body = words(answer.into_body().bytes_stream()).await;
        let refused = Refused { status: status.as_u16(), reason, body, wait };
        Err(HttpError::new(HttpErrorKind::Unknown, refused))
    }
}

/// The beginning of what a server says.
async fn words(mut stream: impl Stream<Item = Result<Bytes, HttpError>> + Unpin) -> String {
    let mut body = Vec::new();
    while let Some(Ok(bytes)) = stream.next().await {
        body.extend_from_slice(&bytes[..bytes.len().min(WORDS - body.len())]);
        if body.len() == WORDS {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

fn date(value: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(value.trim()).ok().map(|date| date.to_utc())
}

/// What `Retry-After` says: seconds, or a date.
fn wait(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let seconds = value.trim().parse().ok().map(Duration::from_secs);
    seconds.or_else(|| (date(value)? - now).to_std().ok()).map(|wait| wait.min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use object_store::ClientConfigKey;

    use super::*;

    #[test]
    fn a_wait_is_seconds_or_a_date_and_not_for_ever() {
        let now = date("Tue, 01 Jan 2019 00:00:00 GMT").expect("a date");
        let seconds = |value| wait(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("3"), Some(3));
        assert_eq!(seconds("Tue, 01 Jan 2019 00:00:07 GMT"), Some(7));
        assert_eq!(seconds("Mon, 31 Dec 2018 00:00:00 GMT"), None);
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("86400"), Some(60));
    }

    #[test]
    fn an_answer_may_take_as_long_as_it_wants_if_bytes_come() {
        let options = client_options(Duration::from_secs(7));
        assert_eq!(options.get_config_value(&ClientConfigKey::Timeout), None);
        assert_eq!(options.get_config_value(&ClientConfigKey::ReadTimeout).as_deref(), Some("7s"));
        assert_eq!(options.get_config_value(&ClientConfigKey::ConnectTimeout).as_deref(), Some("5s"));
    }

    #[test]
    fn the_environment_says_where_s3_is_and_whether_plain_http_may_be() {
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let (s3, endpoint) = s3(variables, client_options(Duration::from_secs(7)));
            let client = |key| s3.get_config_value(&AmazonS3ConfigKey::Client(key));
            assert_eq!(client(ClientConfigKey::Timeout), None);
            (endpoint, client(ClientConfigKey::AllowHttp).expect("is one or the other"))
        };
        let found = |endpoint: &str, plain: bool| (endpoint.to_owned(), plain.to_string());
        assert_eq!(of(&[]), found("", false));
        for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            assert_eq!(of(&[(name, "http://host:1")]), found("http://host:1", true));
            assert_eq!(of(&[(name, "https://host")]), found("https://host", false));
            assert_eq!(of(&[(name, "http://host"), ("AWS_ALLOW_HTTP", "false")]), found("http://host", false));
        }
        assert_eq!(of(&[("AWS_ALLOW_HTTP", "true")]), found("", true));
        let both = [("AWS_ENDPOINT_URL_S3", "https://s3"), ("AWS_ENDPOINT_URL", "http://all")];
        assert_eq!(of(&both), found("https://s3", false));
    }
}
