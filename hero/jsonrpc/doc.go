// Package jsonrpc speaks JSON-RPC 2.0 over HTTP and WebSocket, as server and as
// client. A method is defined once, with Go types for its parameters and its
// result; from that come the decoding of every shape of parameters that clients
// send, the checks, and the OpenRPC document that rpc.discover answers.
//
// It promises that whatever is sent gets an answer with a code and a detail, that
// a handler that panics ends nothing but its own call, and that the size and the
// number of what is worked on at once are bounded. Subscriptions are not spoken.
package jsonrpc
