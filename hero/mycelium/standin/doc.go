// Package standin is a stand-in for Mycelium, for tests and for development on one
// machine: nodes that serve Mycelium's two message APIs, JSON-RPC and REST, as
// version 0.7.10 does, and hand messages to each other within this process. It is
// not Mycelium: there is no network, no routing and no cryptography. A node is
// whoever asked for it by that name, and addresses are made from keys with
// SHA-256 instead of BLAKE3.
//
// It is faithful where that matters to those who use the APIs: exact topics,
// replies that keep an id and have no topic, subscribers before the inbox, states
// and their window of five minutes, a pop that keeps every other call waiting,
// codes and statuses, what is forgotten on a restart. It can also do to a message
// what a network does: see Fault.
package standin
