// Package coordinator serves the coordinator's methods: the objects of the Hero
// systems, and flows of jobs, over JSON-RPC by HTTP and WebSocket.
//
// It promises that every call is checked before anything is written: fields,
// what they refer to, and who may do it. A call that is refused changes nothing
// and says in error.data which field or key it was and what to do. It keeps
// nothing itself: objects are in Redis, and flows run behind Flows.
package coordinator
