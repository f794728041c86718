// Package jsonrpc implements JSON-RPC 2.0 over HTTP and WebSocket, server and client. A
// method is defined once, by Go types for its parameters and its result. They decide how
// the shapes of parameters that clients send are decoded and checked, and make the
// OpenRPC document that rpc.discover answers.
//
// It promises that every request gets an answer with a code and a detail, that a panic of
// a handler ends only its own call, and that the size and number of concurrent requests
// are bounded. It has no subscriptions.
package jsonrpc
