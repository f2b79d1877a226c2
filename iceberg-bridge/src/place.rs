//! Where a table's files are. All of a table lies in one folder of the third root,
//! `{cluster}/tables/{topic id}-{table uuid}`, or `{cluster}/tables/external-{table uuid}` for one
//! that an engine has made: `data/` holds rows, `metadata/` everything else.
//! Object keys and the addresses that engines see differ only in what stands before the folder.

use floe_env::{Env, Error, Result};
use floe_store::ObjectStore;
use kfs::{ClusterId, TopicId};
use uuid::Uuid;

/// The folder of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePlace {
    key: String,
    url: String,
}

impl TablePlace {
    /// The folder of a table, which need not exist yet.
    pub fn new(store: &dyn ObjectStore, cluster: ClusterId, topic: TopicId, table: Uuid) -> Self {
        let key = format!("{cluster}/tables/{topic}-{table}");
        let url = store.url(&key);
        Self { key, url }
    }

    /// The folder of a table that belongs to no topic, which need not exist yet.
    pub fn external(store: &dyn ObjectStore, cluster: ClusterId, table: Uuid) -> Self {
        let key = format!("{cluster}/tables/external-{table}");
        let url = store.url(&key);
        Self { key, url }
    }

    /// The folder of a table that belongs to this topic, or to none.
    pub fn of(
        store: &dyn ObjectStore,
        cluster: ClusterId,
        topic: Option<TopicId>,
        table: Uuid,
    ) -> Self {
        match topic {
            Some(topic) => Self::new(store, cluster, topic, table),
            None => Self::external(store, cluster, table),
        }
    }

    /// The folder's key, which begins the keys of all its files.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The folder's address, which is the table's location.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of a key in the folder.
    ///
    /// # Errors
    /// `Bug` for a key outside.
    pub fn url_of(&self, key: &str) -> Result<String> {
        let inside = key.strip_prefix(&self.key).filter(|inside| inside.starts_with('/'));
        let inside = inside.ok_or_else(|| Error::bug(format!("key `{key}` is not the table's")))?;
        Ok(format!("{}{inside}", self.url))
    }

    /// The key of an address in the folder.
    ///
    /// # Errors
    /// `Corrupt` for an address outside.
    pub fn key_of(&self, url: &str) -> Result<String> {
        let inside = self.name_of(url);
        let inside =
            inside.ok_or_else(|| Error::corrupt(format!("`{url}` is not in {}", self.url)))?;
        Ok(format!("{}/{inside}", self.key))
    }

    /// The name below the folder of a file with this address. `None` outside.
    pub fn name_of<'a>(&self, url: &'a str) -> Option<&'a str> {
        inside(&self.url, url)
    }

    /// A key for a new data file.
    pub fn data_key(&self, env: &Env) -> String {
        format!("{}/data/{}.parquet", self.key, env.uuid())
    }

    /// A key for a file that others were folded into, for the so many-th time.
    pub fn folded_key(&self, env: &Env, generation: u8) -> String {
        format!("{}/data/{}-{generation}.parquet", self.key, env.uuid())
    }

    /// How often the rows of a data file were folded, by its address. `None` for files of others.
    pub fn generation_of(&self, url: &str) -> Option<u8> {
        const UUID_LENGTH: usize = 36;
        let inside = self.name_of(url)?.strip_prefix("data/")?;
        let name = inside.strip_suffix(".parquet")?;
        let (id, behind) = (name.get(..UUID_LENGTH)?, name.get(UUID_LENGTH..)?);
        Uuid::parse_str(id).ok()?;
        if behind.is_empty() { Some(0) } else { behind.strip_prefix('-')?.parse().ok() }
    }

    /// A key for a new manifest.
    pub fn manifest_key(&self, env: &Env) -> String {
        format!("{}/metadata/{}-m0.avro", self.key, env.uuid())
    }

    /// A key for the manifest list of a new snapshot.
    pub fn manifest_list_key(&self, env: &Env, snapshot_id: i64) -> String {
        format!("{}/metadata/snap-{snapshot_id}-{}.avro", self.key, env.uuid())
    }

    /// A key for a new version of the table's metadata.
    pub fn metadata_key(&self, env: &Env, version: u64, is_compressed: bool) -> String {
        let ending = if is_compressed { "gz.metadata.json" } else { "metadata.json" };
        format!("{}/metadata/{version:05}-{}.{ending}", self.key, env.uuid())
    }
}

/// The name below a folder's address of a file with this address; `None` outside. Hadoop's file
/// systems, and so Spark, write addresses of local files with one slash instead of three.
pub(crate) fn inside<'a>(folder: &str, url: &'a str) -> Option<&'a str> {
    let below = url.strip_prefix(folder).or_else(|| {
        let path = folder.strip_prefix("file://")?;
        url.strip_prefix("file:")?.strip_prefix(path)
    });
    below?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn addresses_of_local_files_have_one_slash_or_three() {
        let folder = "file:///a/t";
        for url in ["file:///a/t/data/f", "file:/a/t/data/f"] {
            assert_eq!(inside(folder, url), Some("data/f"));
        }
        for url in
            ["/a/t/f", "file:a/t/f", "file://a/t/f", "file:/a/tt/f", "file:/a/t", "s3:/a/t/f"]
        {
            assert_eq!(inside(folder, url), None, "{url}");
        }
        assert_eq!(inside("s3://b/t", "s3://b/t/f"), Some("f"));
        assert_eq!(inside("s3://b/t", "s3:/b/t/f"), None);
    }
}
