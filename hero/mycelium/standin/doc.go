// Package standin is a stand-in for Mycelium, for tests and for development on one machine.
// Its nodes serve Mycelium's two message APIs, JSON-RPC and REST, of version 0.7.10, and
// pass messages to each other within the process. It has no network, no routing and no
// cryptography: anybody gets the node of a name, and addresses are SHA-256 of the keys
// instead of BLAKE3.
//
// It is faithful where users of the APIs rely on it: exact topics, replies with the id of
// the message and no topic, subscribers before the inbox, states and their window of five
// minutes, a pop that blocks other calls, codes and statuses, the loss of memory in a
// restart. It also simulates a network's faults: see Fault.
package standin
