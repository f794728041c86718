// Package mycelium speaks Mycelium's message API, over JSON-RPC (port 8990) and
// over REST (port 8989), as version 0.7.10 has it: both are the interface API.
//
// A Hub makes calls of it. Mycelium carries messages, not calls, and some of what
// it does bites:
//
//   - A filter of topics is exact equality, and the filter "" takes messages
//     without a topic only.
//   - A reply keeps the id of what it answers and has no topic. Once nobody waits
//     for it within a push, it lies in the ordinary inbox.
//   - A popped message is gone, even if its answer was lost.
//   - A pop that waits keeps every other call to the same node waiting as long.
//   - An id that the node does not know, any more or since it was restarted,
//     proves nothing about the message.
//   - Any node may reply to any message: only srcPk tells its sender.
//
// So the hub pops without waiting, in a loop for each topic that is served and one
// for the empty topic; takes a reply by its message's id or its JSON-RPC id, and
// only from whom was asked; and drops what was there before. It promises that a
// call ends with the reply, with ErrAborted, or with its context, and that what is
// handed to a handler once is not handed to it again by the same hub. It does not
// push anything twice. Replies go to the first pop, so one node
// serves one hub.
package mycelium
