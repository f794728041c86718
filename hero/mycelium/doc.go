// Package mycelium implements Mycelium's message API of version 0.7.10, over JSON-RPC (port
// 8990) and over REST (port 8989).
//
// Mycelium carries messages. A Hub makes calls of them, in spite of these properties:
//
//   - A topic filter is exact equality. The filter "" matches only messages without a
//     topic.
//   - A reply has the id of the message that it answers, and no topic. If no push waits
//     for it, it goes to the ordinary inbox.
//   - A popped message is gone, even if the pop's answer was lost.
//   - A pop that waits blocks every other call to the same node.
//   - An id that the node does not know, or forgot in a restart, proves nothing about the
//     message.
//   - Any node may reply to any message. Only srcPk identifies the sender.
//
// So the hub pops without waiting, in a loop for each served topic and one for the empty
// topic. It matches a reply by its message's id or its JSON-RPC id, accepts it only from
// the node that was called, and drops repeated requests. It promises that a call ends
// with the reply, with ErrAborted, or with its context, that it passes a request to a
// handler once, and that it pushes nothing twice. Replies go to the first pop, so one
// node serves one hub.
package mycelium
