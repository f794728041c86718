// Package coordinator serves the coordinator's methods: the objects of the Hero systems, and
// flows of jobs, as JSON-RPC over HTTP and WebSocket.
//
// It promises to check every call before it writes: fields, references and permissions. A
// refused call changes nothing, and its error.data names the field or key and the next step.
// The coordinator itself is stateless: objects are in Redis, and flows run behind Flows.
package coordinator
