package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

type messageParams struct {
	ContextID uint32       `json:"context_id"`
	Message   hero.Message `json:"message"`
	callerParams
}

func (c *Coordinator) messageMethods() []jsonrpc.Method {
	return []jsonrpc.Method{
		define(c, "message.create", "Send a message: once, however often it is created. Admins may, each in its own name.", "message",
			[]int{jsonrpc.NotFound, jsonrpc.AlreadyExists}, c.createMessage),
		define(c, "message.load", "A message, with its status and logs. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.loadMessage),
		define(c, "message.list", "The context's messages. Readers, executors and admins may.", "", []int{jsonrpc.NotFound}, c.listMessages),
		define(c, "message.delete", "Remove a message. Admins may.", "", []int{jsonrpc.NotFound}, c.deleteMessage),
	}
}

func (c *Coordinator) createMessage(ctx context.Context, p messageParams) (hero.Message, error) {
	caller, err := c.creator(ctx, p.callerParams, p.Message.CallerID)
	if err != nil {
		return hero.Message{}, err
	}
	p.Message.CallerID = caller
	m, err := c.checkMessage(p.Message, p.ContextID)
	if err != nil {
		return hero.Message{}, err
	}
	unlock, err := c.enter(ctx, p.ContextID, callerParams{ActorID: caller}, mayAdmin())
	if err != nil {
		return hero.Message{}, err
	}
	defer unlock()
	stored, err := c.db.Message(ctx, p.ContextID, caller, m.ID)
	switch {
	case err == nil && !sameMessage(stored, m):
		return hero.Message{}, conflict(m.Key(), "it was sent, with another content", "give the new message another id")
	case err == nil:
		return stored, nil
	case !errors.Is(err, redisdb.ErrNotFound):
		return hero.Message{}, err
	}
	if err := c.refers(ctx, m); err != nil {
		return hero.Message{}, err
	}
	if err := c.maySendTo(ctx, m); err != nil {
		return hero.Message{}, err
	}
	_, fresh, err := c.db.Send(ctx, m.ContextID, "rpc/"+m.Key(), m)
	if err != nil {
		return hero.Message{}, err
	}
	sent, err := c.db.Message(ctx, m.ContextID, m.CallerID, m.ID)
	if errors.Is(err, redisdb.ErrNotFound) && !fresh {
		return sent, conflict(m.Key(), "it was sent before, and deleted", "give the new message another id")
	}
	return sent, err
}

// checkMessage refuses an invalid message, fills in what may be left out, and clears the
// fields that only the server sets.
func (c *Coordinator) checkMessage(m hero.Message, context uint32) (hero.Message, error) {
	if err := checkEnvelope(m); err != nil {
		return m, err
	}
	if err := sameContext("message.context_id", &m.ContextID, context); err != nil {
		return m, err
	}
	if m.MessageFormat == "" {
		m.MessageFormat = hero.FormatText
	}
	m.Job = slices.Clone(m.Job)
	for i := range m.Job {
		at := fmt.Sprintf("message.job[%d]", i)
		if m.Job[i].CallerID != 0 && m.Job[i].CallerID != m.CallerID {
			return m, denied(m.CallerID, "", "may not send a job of another actor", "give the caller's own id as "+at+".caller_id")
		}
		m.Job[i].CallerID = m.CallerID
		j, err := c.checkJob(at, m.Job[i], context)
		if err != nil {
			return m, err
		}
		j.Status = hero.JobDispatched
		m.Job[i] = j
	}
	for i := range m.Nodes {
		m.Nodes[i].NodeStatus = ""
	}
	m.Job, m.Nodes, m.Logs = list(m.Job), list(m.Nodes), []hero.Log{}
	m.Status, m.CreatedAt, m.UpdatedAt = hero.MessageDispatched, 0, 0
	m.TransportID, m.TransportStatus, m.Attempt = "", "", 0
	m.Origin, m.Via = "", "" // a message that is created here has no other origin
	return m, nil
}

func checkEnvelope(m hero.Message) error {
	if err := cmp.Or(checkID("message.id", m.ID), checkKnown("message", m.Unknown, "leave it out, or say it by a field that messages have")); err != nil {
		return err
	}
	switch m.MessageType {
	case hero.MessageJob, hero.MessageChat, hero.MessageMail:
	case "":
		return invalid("message.message_type", "is missing: want job, chat or mail")
	default:
		return invalid("message.message_type", "is %s: want job, chat or mail", m.MessageType)
	}
	if m.MessageType == hero.MessageJob && len(m.Job) == 0 && m.FlowID == 0 {
		return invalid("message.job", "is empty, but the message is of type job, and names no flow to run (flow_id)")
	}
	return cmp.Or(
		checkText("message.message", m.Message, maxScript),
		checkWord("message.topic", m.Topic, maxName),
		checkWord("message.reply_to", m.ReplyTo, maxName),
		checkCount("message.job", len(m.Job)),
		checkNodes("message.nodes", m.Nodes),
	)
}

// sameMessage reports whether two messages have the same content, whatever became of the
// stored one.
func sameMessage(stored, m hero.Message) bool {
	if len(stored.Job) != len(m.Job) || stored.Message != m.Message || stored.MessageType != m.MessageType || stored.MessageFormat != m.MessageFormat ||
		stored.Timeout != m.Timeout || stored.TimeoutAck != m.TimeoutAck || stored.TimeoutResult != m.TimeoutResult ||
		m.To != 0 && stored.To != m.To || m.FlowID != 0 && stored.FlowID != m.FlowID {
		return false
	}
	for i := range m.Job {
		if stored.Job[i].ID != m.Job[i].ID || !sameJob(stored.Job[i], m.Job[i]) {
			return false
		}
	}
	return true
}

// refers checks the objects that the message refers to: its receiver exists, its flow is
// the caller's own, and its jobs do not change those of a started flow.
func (c *Coordinator) refers(ctx context.Context, m hero.Message) error {
	if m.To != 0 {
		if _, err := c.loadedActor(ctx, m.To); err != nil {
			return err
		}
	}
	for _, j := range m.Job {
		stored, err := c.db.Job(ctx, m.ContextID, m.CallerID, j.ID)
		if err == nil && !sameJob(stored, j) {
			err = c.inNoFlow(ctx, stored, "change")
		}
		if err != nil && !errors.Is(err, redisdb.ErrNotFound) {
			return err
		}
	}
	if m.FlowID == 0 {
		return nil
	}
	f, err := c.loadedFlow(ctx, m.ContextID, m.FlowID)
	if no := (*jsonrpc.Error)(nil); errors.As(err, &no) && no.Code == jsonrpc.NotFound && len(m.Job) > 0 {
		return c.unused(ctx, hero.Flow{ID: m.FlowID, ContextID: m.ContextID}) // it carries the flow
	}
	if err == nil && f.CallerID != m.CallerID {
		return denied(m.CallerID, f.Key(), "may not send for a flow of another actor", "leave flow_id out")
	}
	return err
}

// maySendTo checks the caller's right in the message's target, if that is another context of
// this Redis.
func (c *Coordinator) maySendTo(ctx context.Context, m hero.Message) error {
	if m.TargetContext == 0 || m.TargetContext == m.ContextID {
		return nil
	}
	there, err := c.db.Context(ctx, m.TargetContext)
	if errors.Is(err, redisdb.ErrNotFound) {
		return nil // it may be another node's, which checks the right
	}
	if err != nil {
		return err
	}
	may, list := there.MayRead(m.CallerID), "readers, executors or admins"
	if m.MessageType == hero.MessageJob {
		may, list = there.MayExecute(m.CallerID), "executors or admins"
	}
	if !may {
		return denied(m.CallerID, there.Key(), "may not send to this context", "leave target_context out, or ask one of its admins to add the actor to "+list)
	}
	return nil
}

func (c *Coordinator) loadMessage(ctx context.Context, p owned) (hero.Message, error) {
	return loadOwned(ctx, c, p, c.loadedMessage, redaction.message)
}

func (c *Coordinator) loadedMessage(ctx context.Context, context, caller, id uint32) (hero.Message, error) {
	m, err := c.db.Message(ctx, context, caller, id)
	return m, orNotFound(err, hero.MessageKey(caller, id), "look with message.list, or send it with message.create")
}

func (c *Coordinator) listMessages(ctx context.Context, p contextList) ([]hero.Message, error) {
	v, err := c.browse(ctx, p)
	if err != nil {
		return nil, err
	}
	all, err := c.db.Messages(ctx, p.ContextID)
	all, err = withUnreadable(c, p.ContextID, all, err, hero.ReadMessage, func(m *hero.Message) *string { return &m.Unreadable })
	return cut(p.page, all, v.message), err
}

func (c *Coordinator) deleteMessage(ctx context.Context, p owned) (bool, error) {
	return c.remove(ctx, p.ContextID, p.caller(), p.check(), func() error {
		if _, err := c.loadedMessage(ctx, p.ContextID, p.CallerID, p.ID); err != nil {
			return err
		}
		return c.db.DeleteMessage(ctx, p.ContextID, p.CallerID, p.ID)
	})
}
