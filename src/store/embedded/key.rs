//! The seal key beside the store file: created at first use, readable by its owner only.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;

use super::super::random::random_bytes;
use super::super::seal::MasterKey;
use super::file::check_access;
use crate::platform::files::{create_private_directory, private};

/// Reads or creates the seal key of this store file. The caller has the store open, so no other process
/// creates the key at the same time.
pub fn seal_key(store: &Path) -> io::Result<MasterKey> {
    let path = beside(store);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // The first writer crashed before the key was complete, so nothing is sealed under the key.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            std::fs::remove_file(&path)?;
        }
        answered => return answered,
    }
    let key: MasterKey = random_bytes().map_err(io::Error::other)?;
    let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&path)?;
    file.write_all(&key)?;
    // The key must be on disk before it seals anything: without it nothing opens after a crash.
    file.sync_all()?;
    Ok(key)
}

/// Reads or creates the seal key that the store files of several processes share. Several processes may
/// create it at the same time, and one wins.
pub fn shared_key(store: &Path) -> io::Result<MasterKey> {
    let path = beside(store);
    if let Some(directory) = path.parent() {
        create_private_directory(directory)?;
    }
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        answered => return answered,
    }
    let key: MasterKey = random_bytes().map_err(io::Error::other)?;
    // The file gets its name when it is whole, so that no other process reads half a key.
    let mut whole = OsString::from(&path);
    whole.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let mut file =
        private(OpenOptions::new().write(true).create(true).truncate(true)).open(&whole)?;
    file.write_all(&key)?;
    file.sync_all()?;
    // A link fails where the name exists. A rename would replace the key of the process that was first.
    let named = std::fs::hard_link(&whole, &path);
    std::fs::remove_file(&whole)?;
    match named {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // The key that has the name counts, whichever process made it.
        Ok(()) | Err(_) => read(&path),
    }
}

/// The key under which callers are hashed, for store files that share a seal key.
pub fn callers_key(master: &MasterKey) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, master);
    let tag = hmac::sign(&key, b"raincheck callers");
    let mut derived = [0; 32];
    for (to, from) in derived.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    derived
}

fn read(path: &Path) -> io::Result<MasterKey> {
    let mut key = [0; 32];
    let mut file = OpenOptions::new().read(true).open(path)?;
    check_access(&file)?;
    file.read_exact(&mut key)?;
    Ok(key)
}

fn beside(store: &Path) -> PathBuf {
    let mut path = OsString::from(store);
    path.push(".key");
    path.into()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn all_who_make_a_shared_key_at_once_have_the_same() {
        let name = format!("raincheck-key-{}", uuid::Uuid::new_v4());
        let store = std::env::temp_dir().join(name);
        let keys: Vec<_> = std::thread::scope(|scope| {
            let making = || scope.spawn(|| shared_key(&store));
            let all: Vec<_> = std::iter::repeat_with(making).take(8).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        std::fs::remove_file(beside(&store)).unwrap();
        let first = keys[0].as_ref().unwrap();
        assert!(keys.iter().all(|key| key.as_ref().unwrap() == first));
    }

    #[test]
    fn it_is_made_once_and_for_its_owner_only() {
        let name = format!("raincheck-key-{}", uuid::Uuid::new_v4());
        let store = std::env::temp_dir().join(name);
        let key = seal_key(&store).unwrap();
        assert_eq!(seal_key(&store).unwrap(), key);
        let path = beside(&store);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, b"short").unwrap();
        assert_ne!(seal_key(&store).unwrap(), key);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        let refused = seal_key(&store).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_file(path).unwrap();
    }
}
