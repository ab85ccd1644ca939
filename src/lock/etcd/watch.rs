//! Watches: etcd says when a key goes.

use etcd_client::{WatchFilterType, WatchOptions, WatchStream};

use super::calls::{Calls, why};
use crate::lock::Error;

/// Opens a watch over the end of each of these keys, from this revision on: what has happened since is told
/// too, so nothing is missed between a look and its watch.
pub(super) async fn open(calls: &Calls, keys: &[&str], from: i64) -> Result<WatchStream, Error> {
    let options = move || {
        let ends_only = WatchFilterType::NoPut;
        let options = WatchOptions::new().with_start_revision(from);
        Some(options.with_filters([ends_only]))
    };
    let words = format!("watch {}", keys.join(" "));
    let mut watches = calls.client.watch_client();
    let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
    let opening = async move {
        let (first, others) = keys.split_first().expect("something to watch");
        let mut stream = watches.watch(first.as_str(), options()).await?;
        for key in others {
            stream.watch(key.as_str(), options()).await?;
        }
        Ok(stream)
    };
    calls.run(words, opening).await
}

/// Returns when one of the watched keys has gone; an error if the watch broke, and nothing is known.
pub(super) async fn end(stream: &mut WatchStream) -> Result<(), Error> {
    loop {
        let told = stream.message().await.map_err(|said| why(&said))?;
        match told {
            Some(told) if told.canceled() => {
                // What it was to begin with has been compacted away, or the member has lost its leader.
                return Err(Error::Unreachable("etcd has ended a watch".into()));
            }
            Some(told) if !told.events().is_empty() => return Ok(()),
            Some(_) => {}
            None => return Err(Error::Unreachable("a watch has ended".into())),
        }
    }
}
