package router

import (
	"cmp"
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
	"edda/hero/supervisor"
	"edda/internal/backoff"
)

// MessageTopic is the Mycelium topic on which coordinators receive messages for actors and
// for other contexts.
const MessageTopic = "message.rpc"

// mailbox is the destination of a message for an actor: a context of this Redis, or a node
// of Mycelium where context is 0.
type mailbox struct {
	context uint32
	to      mycelium.Peer
	topic   string
}

// post delivers chat, mail and results, and ends the message once the receiver has it
// durably.
func (l *contextLoop) post(ctx context.Context, m hero.Message) error {
	box, err := l.mailbox(ctx, m)
	if errors.Is(err, edda.Permanent) {
		return l.fail(ctx, m, fateError, err.Error())
	}
	why := ""
	if err == nil {
		why, err = l.put(ctx, m, box)
	}
	if err != nil {
		return err
	}
	if why != "" {
		return l.fail(ctx, m, fateError, why)
	}
	l.r.o.at("posted", m.Key())
	return l.finish(ctx, m, hero.MessageProcessed, "")
}

// put delivers the message to the mailbox; why is the reason where that is impossible.
func (l *contextLoop) put(ctx context.Context, m hero.Message, box mailbox) (why string, err error) {
	switch box.context {
	case 0:
		return l.sendToNode(ctx, m, box)
	case l.Context:
		return "", l.pushOnce(ctx, m)
	}
	other, err := l.r.at(box.context)
	if err != nil {
		return "", err
	}
	if why, err = other.admits(ctx, place(l.Context, 0), m); err != nil || why != "" {
		return why, err
	}
	m.TargetContext, m.Via = box.context, ""
	return "", other.arrive(ctx, originOf(l.Context, m.Key()), m)
}

// mailbox decides where a message for an actor goes: where it came from when it answers, a
// context of this Redis that it names, the actor's address, and else the msg_in of this
// context.
func (l *contextLoop) mailbox(ctx context.Context, m hero.Message) (mailbox, error) {
	if m.Via != "" {
		return boxAt(m.Via)
	}
	if m.TargetContext != 0 && m.TargetContext != l.Context {
		contexts, err := l.DB.Contexts(ctx)
		if err != nil {
			return mailbox{}, err
		}
		if slices.Contains(contexts, m.TargetContext) {
			return mailbox{context: m.TargetContext}, nil
		}
	}
	if m.TargetContext == l.Context {
		return mailbox{context: l.Context}, nil
	}
	to := m.To
	if to == 0 && m.MessageType == hero.MessageResult {
		to = m.CallerID
	}
	switch {
	case to == 0 && m.TargetContext == 0:
		return mailbox{context: l.Context}, nil // chat and mail of the documents name no actor
	case to == 0:
		return mailbox{}, edda.Classify(edda.Permanent, "context %d is not in this Redis, and it does not say which actor it is for (to)", m.TargetContext)
	}
	box, ok, err := l.boxOf(ctx, to, m.TargetContext != 0)
	switch {
	case err != nil || ok:
		return box, err
	case m.TargetContext != 0:
		return mailbox{}, edda.Classify(edda.Permanent, "context %d is not in this Redis, and actor %d has no address of Mycelium", m.TargetContext, to)
	}
	return mailbox{context: l.Context}, nil
}

// boxOf finds the actor's first address that is one of Mycelium. Where the message must go
// elsewhere, the actor's public key serves too.
func (l *contextLoop) boxOf(ctx context.Context, actor uint32, elsewhere bool) (mailbox, bool, error) {
	a, err := l.DB.Actor(ctx, actor)
	if err != nil {
		return mailbox{}, false, absent(err)
	}
	for _, address := range a.Address {
		if isHTTP(address) || address == "" {
			continue
		}
		if box, err := boxAt(address); err == nil {
			return box, true, nil
		}
	}
	if elsewhere && isKey(a.PubKey) {
		return mailbox{to: mycelium.Peer{PK: a.PubKey}, topic: MessageTopic}, true, nil
	}
	return mailbox{}, false, nil
}

func boxAt(address string) (mailbox, error) {
	to, topic, err := mycelium.ParseDestination(address)
	if err != nil {
		return mailbox{}, edda.Classify(edda.Permanent, "address %.80q: %w", address, err)
	}
	return mailbox{to: to, topic: cmp.Or(topic, MessageTopic)}, nil
}

// pushOnceScript pushes a message's key once as long as its hash exists.
var pushOnceScript = redis.NewScript(`
if redis.call('HSETNX', KEYS[1], 'edda_arrived', ARGV[1]) == 1 then return redis.call('LPUSH', KEYS[2], KEYS[1]) end
return 0`)

// pushOnce puts the message's own key into this context's msg_in.
func (l *contextLoop) pushOnce(ctx context.Context, m hero.Message) error {
	if m.MessageType == hero.MessageResult {
		if full, err := l.r.full(ctx, l.Context); err != nil || full {
			return err
		}
	}
	err := pushOnceScript.Run(ctx, l.Redis, []string{m.Key(), hero.MsgIn}, time.Now().Unix()).Err()
	return l.DB.Explain("push "+m.Key()+" on msg_in", l.Context, err)
}

// admits tells why a message from another place may not enter this context: a result must
// answer a job that was sent to that place, and the caller of any other message needs the
// right to send it here. An empty why admits it.
func (l *contextLoop) admits(ctx context.Context, from string, m hero.Message) (why string, err error) {
	if m.MessageType == hero.MessageResult {
		asked, ok, err := l.asked(ctx, m.ReplyTo)
		if err == nil && ok {
			ok, err = l.sentThere(ctx, asked, from, m)
		}
		if err != nil || ok {
			return "", err
		}
		return fmt.Sprintf("%s: it answers no job that context %d sent here", deniedPrefix, l.Context), nil
	}
	c, err := l.DB.Context(ctx, l.Context)
	if err != nil {
		return fmt.Sprintf("context %d cannot be read: %v", l.Context, err), absent(err)
	}
	if err := permit(c, m); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// sentThere reports whether the result answers a job of the message asked that was sent to
// that place.
func (l *contextLoop) sentThere(ctx context.Context, asked hero.Message, there string, result hero.Message) (bool, error) {
	route, ok := answeredBy(asked, result)
	if !ok {
		return false, nil
	}
	to, err := l.noted(ctx, asked, sentTo, route.job.ID)
	return to == there, err
}

// arrive puts a copy of an admitted message into this context's msg_in, once for its
// origin, and settles the job that it answers. The copy keeps its id where that is free.
func (l *contextLoop) arrive(ctx context.Context, from string, m hero.Message) error {
	m.Origin, m.Logs, m.Topic, m.TransportID, m.TransportStatus = from, nil, "", "", ""
	if m.MessageType == hero.MessageResult {
		asked, ok, err := l.asked(ctx, m.ReplyTo)
		if err != nil {
			return err
		}
		if ok && !asked.Status.Ended() {
			job, e, ok, err := l.endIn(ctx, asked, m)
			if err == nil && ok {
				err = l.settle(ctx, asked, job, e, silent)
			}
			if err != nil {
				return err
			}
		}
		if full, err := l.r.full(ctx, l.Context); err != nil || full {
			return err
		}
	}
	command := "arrived:" + m.Via + ":" + from + ":" + fmt.Sprint(m.CreatedAt)
	if len(m.Job) > 0 { // the jobs of one message may go different ways
		command += ":" + fmt.Sprint(m.Job[0].ID)
	}
	_, _, err := l.DB.Arrive(ctx, l.Context, command, m)
	if errors.Is(err, redisdb.ErrExists) {
		m.ID = 0
		_, _, err = l.DB.Arrive(ctx, l.Context, command, m)
	}
	return err
}

// toOtherContext sends a job to the context that it is to run in: into the msg_in of a
// context of this Redis, or over Mycelium to the actor that the message names. done is
// false where a target of this context gets the job instead.
func (l *contextLoop) toOtherContext(ctx context.Context, m hero.Message, job hero.Job, url string) (out end, done bool, err error) {
	if url != "" {
		return end{}, false, nil
	}
	contexts, err := l.DB.Contexts(ctx)
	if err != nil {
		return end{}, false, err
	}
	box, where := mailbox{context: job.ContextID}, place(job.ContextID, 0)
	if !slices.Contains(contexts, job.ContextID) {
		if m.To == 0 {
			return end{}, false, nil
		}
		where = place(job.ContextID, m.To)
		var ok bool
		if box, ok, err = l.boxOf(ctx, m.To, true); err != nil {
			return end{}, false, err
		}
		if !ok {
			return broke("context %d is not in this Redis, and actor %d has no address of Mycelium", job.ContextID, m.To), true, nil
		}
	}
	if err := l.expect(ctx, m, job); err != nil {
		return end{}, false, err
	}
	if err := l.note(ctx, m.Key(), numbered(sentTo, job.ID), where); err != nil {
		return end{}, false, err
	}
	one := m
	one.TargetContext, one.Job, one.Nodes, one.FlowID = job.ContextID, []hero.Job{job}, nil, 0
	why, err := l.put(ctx, one, box)
	if err != nil {
		return end{}, false, err
	}
	if why != "" {
		return broke("%s", why), true, nil
	}
	l.acknowledged(ctx, m, job, supervisor.Progress{Status: hero.TransportDelivered, Acknowledged: true})
	return end{}, true, nil
}

// deliverParams are the parameters of message.deliver.
type deliverParams struct {
	Message hero.Message `json:"message"`
	Origin  string       `json:"origin"` // the sender's <context>/<key>
}

// sendToNode sends the message to a node of Mycelium until the node confirms it; the node
// knows a message that it got before. why is the reason where that is impossible.
func (l *contextLoop) sendToNode(ctx context.Context, m hero.Message, box mailbox) (why string, err error) {
	if l.r.o.Mesh == nil {
		return "it is for a node of Mycelium, which is not configured here", nil
	}
	within := seconds(m.Timeout, defaultTimeout)
	until := time.Now().Add(within)
	for p := newRetry(); ; {
		err := l.sendOnce(ctx, m, box)
		switch {
		case err == nil:
			return "", nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.Is(err, edda.Permanent):
			return err.Error(), nil
		case time.Now().After(until):
			return fmt.Sprintf("not delivered within %s: %v", within, err), nil
		}
		if err := backoff.Wait(ctx, p.Next()); err != nil {
			return "", err
		}
	}
}

func (l *contextLoop) sendOnce(ctx context.Context, m hero.Message, box mailbox) error {
	ctx, done := context.WithTimeout(ctx, seconds(m.TimeoutAck, defaultAck))
	defer done()
	m.Via, m.Origin = "", ""
	id := fmt.Sprintf("%s.m%d", l.r.prefix, l.r.seq.Add(1))
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": "message.deliver",
		"params": []deliverParams{{Message: m, Origin: originOf(l.Context, m.Key())}}})
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
	switch e := reply.Error; {
	case e == nil:
		return nil
	case e.Code == jsonrpc.StorageError || e.Code == jsonrpc.InternalError || e.Code == jsonrpc.Busy:
		return e
	default:
		return edda.Classify(edda.Permanent, "the other side refused: %s", strings.TrimSpace(e.Error()))
	}
}
