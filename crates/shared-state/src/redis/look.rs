//! One look at a server, for whoever wants to know whether it would do: reached, let in, asked about itself, written to.
//!
//! Unlike the link it says why nobody could be reached, because a person asks.

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, RedisError, Script};
use tokio::time::timeout;

use super::RedisSettings;
use super::link::{About, RedisTrouble, classified};
use super::names::Names;
use super::scripts::STRICT;

/// Writes a key that ends by itself. One step, like everything that is done here.
const WRITE: &str = "redis.call('SET', KEYS[1], '', 'PX', 1000) return 1";

/// A server that would do, and what should be known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenServer {
    pub version: String,
    /// Older than what is tested.
    pub is_old: bool,
    /// The policy by which it throws keys away when it is full, if it does.
    pub throws_away: Option<String>,
}

/// A server that would not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{trouble}{}", because.as_ref().map(|words| format!(": {words}")).unwrap_or_default())]
pub struct NotUsable {
    pub trouble: RedisTrouble,
    /// What the machine said where nobody could be reached: never the words of a server, never the address.
    pub because: Option<String>,
}

/// Looks at the server as one that is about to use it. Takes no longer than a connection and an operation may.
pub async fn look(settings: &RedisSettings) -> Result<SeenServer, NotUsable> {
    let client = settings.client().map_err(|_| RedisTrouble::Unreachable)?;
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let greeting = async {
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let about = About::ask(&mut connection).await?;
        Ok::<_, RedisError>((connection, about))
    };
    let (connection, about) = match timeout(settings.connect_timeout, greeting).await {
        Ok(greeted) => greeted?,
        Err(_elapsed) => return Err(RedisTrouble::Slow.into()),
    };
    if about.is_cluster() {
        return Err(RedisTrouble::Cluster.into());
    }
    match timeout(settings.operation_timeout, write(connection, settings)).await {
        Ok(written) => written?,
        Err(_elapsed) => return Err(RedisTrouble::Slow.into()),
    }
    Ok(SeenServer {
        version: about.version().unwrap_or("of an unknown version").to_owned(),
        is_old: about.is_old(),
        throws_away: about.throws_away().map(str::to_owned),
    })
}

async fn write(mut connection: MultiplexedConnection, settings: &RedisSettings) -> Result<(), RedisError> {
    let key = Names::new(&settings.namespace).look(&settings.replica);
    Script::new(&format!("{STRICT}{WRITE}")).key(key).invoke_async::<i64>(&mut connection).await?;
    Ok(())
}

impl From<RedisTrouble> for NotUsable {
    fn from(trouble: RedisTrouble) -> Self {
        Self { trouble, because: None }
    }
}

impl From<RedisError> for NotUsable {
    fn from(error: RedisError) -> Self {
        let trouble = classified(&error);
        let said_by_the_machine = trouble == RedisTrouble::Unreachable && error.is_io_error();
        Self { trouble, because: said_by_the_machine.then(|| error.to_string()) }
    }
}
