package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// MessageTopic is the Mycelium topic on which coordinators take messages for
// actors and for other contexts.
const MessageTopic = "message.rpc"

// mailbox is where a message for an actor goes: a context of this Redis, or a
// node of Mycelium.
type mailbox struct {
	context uint32
	to      mycelium.Destination
	topic   string
}

// post takes chat, mail and results to whom they are for, until the other side
// has them for good.
func (l *contextLoop) post(ctx context.Context, m hero.Message) error {
	box, err := l.mailbox(ctx, m)
	if errors.Is(err, edda.Permanent) {
		return l.fail(ctx, m, fateError, err.Error())
	}
	if err != nil {
		return err
	}
	if why, err := l.put(ctx, m, box); err != nil || why != "" {
		if err != nil {
			return err
		}
		return l.fail(ctx, m, fateError, why)
	}
	if err := l.r.o.at("posted", m.Key()); err != nil {
		return err
	}
	return l.finish(ctx, m, hero.MessageProcessed, "")
}

// put delivers the message to the mailbox; why says that this is impossible.
func (l *contextLoop) put(ctx context.Context, m hero.Message, box mailbox) (why string, err error) {
	switch box.context {
	case 0:
		return l.sendToNode(ctx, m, box)
	case l.context:
		return "", l.pushOnce(ctx, m)
	}
	if why, err = l.r.admits(ctx, box.context, place(l.context, 0), m); err != nil || why != "" {
		return why, err
	}
	m.TargetContext, m.Via = box.context, ""
	return "", l.r.arrive(ctx, box.context, originOf(l.context, m.Key()), m)
}

// mailbox decides where a message for an actor goes: where it came from when it
// answers, a context of this Redis that it names, the actor's address, and where
// there is none of these, the msg_in of this context.
func (l *contextLoop) mailbox(ctx context.Context, m hero.Message) (mailbox, error) {
	if m.Via != "" {
		return boxAt(m.Via)
	}
	if m.TargetContext == l.context {
		return mailbox{context: l.context}, nil
	}
	here := false
	if m.TargetContext != 0 {
		var err error
		if here, err = l.r.has(ctx, m.TargetContext); err != nil {
			return mailbox{}, err
		}
		if here {
			return mailbox{context: m.TargetContext}, nil
		}
	}
	to := m.To
	if to == 0 && m.MessageType == hero.MessageResult {
		to = m.CallerID
	}
	switch {
	case to == 0 && m.TargetContext == 0:
		return mailbox{context: l.context}, nil // as the documents' chat and mail, which name no actor
	case to == 0:
		return mailbox{}, edda.Classify(edda.Permanent, "context %d is not in this Redis, and it does not say which actor it is for (to)", m.TargetContext)
	}
	actor, err := l.r.db.Actor(ctx, to)
	if err != nil && absent(err) != nil {
		return mailbox{}, err
	}
	if err == nil {
		if box, ok := boxOf(actor, m.TargetContext != 0); ok {
			return box, nil
		}
	}
	if m.TargetContext != 0 {
		return mailbox{}, edda.Classify(edda.Permanent, "context %d is not in this Redis, and actor %d has no address of Mycelium", m.TargetContext, to)
	}
	return mailbox{context: l.context}, nil
}

// boxOf is the actor's first address that Mycelium knows; elsewhere tells that it
// must be one, and then its public key will do.
func boxOf(a hero.Actor, elsewhere bool) (mailbox, bool) {
	for _, address := range a.Address {
		if isHTTP(address) || address == "" {
			continue
		}
		if box, err := boxAt(address); err == nil {
			return box, true
		}
	}
	if elsewhere && isKey(a.PubKey) {
		return mailbox{to: mycelium.Destination{PK: a.PubKey}, topic: MessageTopic}, true
	}
	return mailbox{}, false
}

func boxAt(address string) (mailbox, error) {
	to, topic, err := mycelium.ParseDestination(address)
	if err != nil {
		return mailbox{}, edda.Classify(edda.Permanent, "address %.80q: %w", address, err)
	}
	if topic == "" {
		topic = MessageTopic
	}
	return mailbox{to: to, topic: topic}, nil
}

// pushOnceScript pushes a message's key once in the life of its hash.
var pushOnceScript = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], 'edda_arrived', ARGV[1]) == 1 then return redis.call('LPUSH', KEYS[2], KEYS[1]) end
return 0`)

// pushOnce puts the message's own key into this context's msg_in.
func (l *contextLoop) pushOnce(ctx context.Context, m hero.Message) error {
	if m.MessageType == hero.MessageResult {
		if full, err := l.r.full(ctx, l.context); err != nil || full {
			return err
		}
	}
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	if err := pushOnceScript.Run(ctx, c, []string{m.Key(), hero.MsgIn}, time.Now().Unix()).Err(); err != nil {
		return l.r.db.Explain("push "+m.Key()+" on msg_in", l.context, err)
	}
	return nil
}

// has tells whether the context is in this Redis.
func (r *Router) has(ctx context.Context, context uint32) (bool, error) {
	contexts, err := r.db.Contexts(ctx)
	return slices.Contains(contexts, context), err
}

// admits tells why a message from another place may not come into a context: a
// result must answer a job that was sent to that place, and the caller of any
// other message needs the right that it would need in that context.
func (r *Router) admits(ctx context.Context, into uint32, from string, m hero.Message) (why string, err error) {
	if m.MessageType == hero.MessageResult {
		if ok, err := newContextLoop(r, into).sent(ctx, from, m); err != nil || ok {
			return "", err
		}
		return fmt.Sprintf("%s: it answers no job that context %d sent here", deniedPrefix, into), nil
	}
	c, err := r.db.Context(ctx, into)
	if err != nil {
		return fmt.Sprintf("context %d cannot be read: %v", into, err), absent(err)
	}
	if err := permit(c, m); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// sent tells whether the result answers a job of this context that was sent to the
// place that the result comes from.
func (l *contextLoop) sent(ctx context.Context, from string, m hero.Message) (bool, error) {
	asked, ok, err := l.asked(ctx, l.context, m.ReplyTo)
	if err != nil || !ok {
		return false, err
	}
	e, ok := answeredBy(asked, m)
	if !ok {
		return false, nil
	}
	to, err := l.noted(ctx, asked.Key(), numbered(sentTo, e.job.ID))
	return to == from, err
}

// arrive puts a copy of a message that is admitted into another context's msg_in,
// once for where it comes from, and settles what it answers there. The copy keeps its id where
// that is free.
func (r *Router) arrive(ctx context.Context, into uint32, from string, m hero.Message) error {
	m.Origin, m.Logs, m.Topic, m.TransportID, m.TransportStatus = from, nil, "", "", ""
	if m.MessageType == hero.MessageResult {
		if err := r.settled(ctx, into, m); err != nil {
			return err
		}
		if full, err := r.full(ctx, into); err != nil || full {
			return err
		}
	}
	command := "arrived:" + m.Via + ":" + from + ":" + fmt.Sprint(m.CreatedAt)
	if len(m.Job) > 0 { // the jobs of one message may go different ways
		command += ":" + fmt.Sprint(m.Job[0].ID)
	}
	_, _, err := r.db.Arrive(ctx, into, command, m)
	if errors.Is(err, redisdb.ErrExists) {
		m.ID = 0
		_, _, err = r.db.Arrive(ctx, into, command, m)
	}
	return err
}

// settled settles the message that a result answers which came from elsewhere.
func (r *Router) settled(ctx context.Context, in uint32, m hero.Message) error {
	l := newContextLoop(r, in)
	asked, ok, err := l.asked(ctx, in, m.ReplyTo)
	if err != nil || !ok || asked.Status.Ended() {
		return err
	}
	job, e, ok, err := l.endIn(ctx, asked, m)
	if err != nil || !ok {
		return err
	}
	return l.settle(ctx, asked, job, e, silent)
}

// deliverParams is what message.deliver takes.
type deliverParams struct {
	Message hero.Message `json:"message"`
	Origin  string       `json:"origin"` // <context>/<key> where it comes from
}

// sendToNode sends the message to a node of Mycelium until that says that it has it;
// the other side knows a message that it got before. why says that it never will.
func (l *contextLoop) sendToNode(ctx context.Context, m hero.Message, box mailbox) (why string, err error) {
	if l.r.o.Mesh == nil {
		return "it is for a node of Mycelium, which is not configured here", nil
	}
	until := time.Now().Add(seconds(m.Timeout, defaultTimeout))
	p := newRetry()
	for {
		err := l.sendOnce(ctx, m, box)
		switch {
		case err == nil:
			return "", nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.Is(err, edda.Permanent):
			return err.Error(), nil
		case time.Now().After(until):
			return fmt.Sprintf("not delivered within %s: %v", seconds(m.Timeout, defaultTimeout), err), nil
		}
		if backoff.Wait(ctx, p.Next()) != nil {
			return "", ctx.Err()
		}
	}
}

// sendOnce sends the message once.
func (l *contextLoop) sendOnce(ctx context.Context, m hero.Message, box mailbox) error {
	ctx, done := context.WithTimeout(ctx, seconds(m.TimeoutAck, defaultAck))
	defer done()
	m.Via, m.Origin = "", ""
	id := fmt.Sprintf("%s.m%d", l.r.prefix, l.r.seq.Add(1))
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "message.deliver",
		"params": []deliverParams{{Message: m, Origin: originOf(l.context, m.Key())}}})
	if err != nil {
		return edda.Classify(edda.Permanent, "encode %s: %w", m.Key(), err)
	}
	raw, err := l.r.o.Mesh.Call(ctx, box.to, box.topic, request, id, mycelium.CallOptions{})
	if err != nil {
		return err
	}
	var reply struct {
		Error *jsonrpc.Error `json:"error"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return fmt.Errorf("the answer is no JSON-RPC: %.80q", raw)
	}
	return refusal(reply.Error)
}

// refusal: an error of the other side's is for good, unless it is its storage.
func refusal(e *jsonrpc.Error) error {
	switch {
	case e == nil:
		return nil
	case e.Code == jsonrpc.StorageError || e.Code == jsonrpc.InternalError || e.Code == jsonrpc.Busy:
		return e
	}
	return edda.Classify(edda.Permanent, "the other side refused: %s", strings.TrimSpace(e.Error()))
}
