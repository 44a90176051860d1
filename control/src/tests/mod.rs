//! Over real sockets, against a scripted store.
