//! Makes a stream of an `async fn next`.

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

/// Something that gives one item after the other. [`Unfold::into_stream`] is cancel safe to poll whatever
/// `next` awaits: the stream keeps a pending `next`.
pub trait Unfold: Send + Sized + 'static {
    type Item: 'static;

    /// The next item. `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Self::Item>> + Send;

    fn into_stream(self) -> BoxStream<'static, Self::Item> {
        stream::unfold(self, |mut this| async {
            let item = this.next().await?;
            Some((item, this))
        })
        .boxed()
    }
}
