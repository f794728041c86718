package router

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/redisdb"
)

// senderKey is the key, in a call's context, of the message that brought the call.
type senderKey struct{}

// Receiver accepts the messages that other nodes send for actors and contexts of this
// Redis. A hub serves MessageTopic with it.
type Receiver struct {
	r   *Router
	rpc *jsonrpc.Server
}

// Receiver makes the router's receiver of messages over Mycelium.
func (r *Router) Receiver() (*Receiver, error) {
	v := &Receiver{r: r}
	o := jsonrpc.MethodOptions{Errors: []int{jsonrpc.PermissionDenied, jsonrpc.NotFound, jsonrpc.StorageError}}
	var err error
	v.rpc, err = jsonrpc.NewServer(
		jsonrpc.Info{Title: "Messages", Version: "1", Description: "Takes messages for actors and contexts."},
		[]jsonrpc.Method{jsonrpc.Define("message.deliver", "Put a message into the msg_in of a context.", o, v.deliver)},
		jsonrpc.ServerOptions{Log: r.o.Log})
	return v, err
}

// HandleMessage answers a JSON-RPC request that came over Mycelium.
func (v *Receiver) HandleMessage(ctx context.Context, m mycelium.Message) []byte {
	return v.rpc.Handle(context.WithValue(ctx, senderKey{}, m), m.Payload)
}

// deliver stores a message whose sender is genuine; true means that it is durable.
func (v *Receiver) deliver(ctx context.Context, p deliverParams) (bool, error) {
	from, ok := ctx.Value(senderKey{}).(mycelium.Message)
	if !ok || from.SrcPK == "" {
		return false, jsonrpc.Errorf(jsonrpc.PermissionDenied, "the message came from nobody: it has no public key")
	}
	m := p.Message
	if _, _, ok := readOrigin(p.Origin); !ok || m.ID == 0 || len(p.Origin) > maxOrigin {
		return false, jsonrpc.Errorf(jsonrpc.InvalidParams, "want a message with an id, and its origin as <context>/<key>")
	}
	if len(m.Unknown) > 0 {
		return false, jsonrpc.Errorf(jsonrpc.InvalidParams, "message.%s is not understood here: leave it out", m.Unknown[0])
	}
	id, err := v.into(ctx, m)
	if err != nil {
		return false, err
	}
	l, err := v.r.at(id)
	if err != nil {
		return false, jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
	}
	if err := v.genuine(ctx, l, p, from); err != nil {
		return false, err
	}
	m.Via, m.TargetContext, m.ContextID = "mycelium://"+from.SrcPK, id, id
	if err := l.arrive(ctx, p.Origin, m); err != nil {
		return false, jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
	}
	return true, nil
}

// maxOrigin bounds the length of an origin, which is a part of a key.
const maxOrigin = 100

// into finds the context that the message is for: the one that it names, else the first
// where its actor may read.
func (v *Receiver) into(ctx context.Context, m hero.Message) (uint32, error) {
	contexts, err := v.r.db.Contexts(ctx)
	if err != nil {
		return 0, jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
	}
	for _, id := range contexts {
		if m.TargetContext == id {
			return id, nil
		}
		if m.TargetContext != 0 || m.To == 0 {
			continue
		}
		c, err := v.r.db.Context(ctx, id)
		if err == nil && c.MayRead(m.To) {
			return id, nil
		}
	}
	return 0, jsonrpc.Errorf(jsonrpc.NotFound, "no context here for actor %d and target_context %d", m.To, m.TargetContext)
}

// genuine checks that the message's caller sent it: the node's public key is that of the
// actor. A result must come from the place that its job was sent to.
func (v *Receiver) genuine(ctx context.Context, l *contextLoop, p deliverParams, from mycelium.Message) error {
	m := p.Message
	who := m.CallerID
	switch m.MessageType {
	case hero.MessageResult:
		context, _, _ := readOrigin(p.Origin)
		asked, ok, err := l.asked(ctx, m.ReplyTo)
		if err == nil && ok {
			ok, err = l.sentThere(ctx, asked, place(context, asked.To), m)
		}
		if err != nil {
			return jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
		}
		if !ok || asked.To == 0 {
			return jsonrpc.Errorf(jsonrpc.PermissionDenied, "it answers no message that was sent from here")
		}
		who = asked.To
	case hero.MessageJob, hero.MessageChat, hero.MessageMail:
	default:
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "message_type %.40q is none of job, chat, mail and result", m.MessageType)
	}
	actor, err := v.r.db.Actor(ctx, who)
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		return jsonrpc.Errorf(jsonrpc.PermissionDenied, "actor %d is not known here", who)
	case err != nil:
		return jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
	case actor.PubKey == "":
		return jsonrpc.Errorf(jsonrpc.PermissionDenied, "actor %d has no public key here, so that no other node can speak for it: give it one with actor.create", who)
	case subtle.ConstantTimeCompare([]byte(strings.ToLower(actor.PubKey)), []byte(strings.ToLower(from.SrcPK))) != 1:
		return jsonrpc.Errorf(jsonrpc.PermissionDenied, "the sender's public key is not that of actor %d", who)
	}
	for _, j := range m.Job {
		if m.MessageType != hero.MessageJob || j.CallerID == 0 || j.CallerID == m.CallerID {
			continue
		}
		// Nobody can speak for another actor without a public key here.
		other, err := v.r.db.Actor(ctx, j.CallerID)
		switch {
		case errors.Is(err, redisdb.ErrNotFound), err == nil && other.PubKey == "":
			return jsonrpc.Errorf(jsonrpc.PermissionDenied, "job %d is of actor %d, which has no public key here", j.ID, j.CallerID)
		case err != nil:
			return jsonrpc.Errorf(jsonrpc.StorageError, "%v", err)
		}
	}
	return nil
}
