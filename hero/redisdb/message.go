package redisdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"

	"edda/hero"
)

// Message reads a message.
func (d *DB) Message(ctx context.Context, in, caller, id uint32) (hero.Message, error) {
	return get(ctx, d, in, hero.MessageKey(caller, id), messageOf(in))
}

// messageOf reads the messages of one context. A message that names no context is of that
// one; a message from another context names its origin.
func messageOf(in uint32) read[hero.Message] {
	return func(key string, h map[string]string) (hero.Message, error) {
		m, err := hero.ReadMessage(key, h)
		m.ContextID = cmp.Or(m.ContextID, in)
		return m, err
	}
}

// PutMessage creates or replaces a message in a context. It sends nothing. The status of
// an existing message takes legal steps only, else ErrIllegal.
func (d *DB) PutMessage(ctx context.Context, in uint32, m hero.Message) error {
	return put(ctx, d, in, m, "status", hero.ReadMessage, func(was hero.Message) error {
		if !was.Status.MayBecome(m.Status) {
			return illegal(was.Key(), string(was.Status), string(m.Status))
		}
		return nil
	})
}

// Messages lists all messages of a context, by caller and id. About an error see Flows.
func (d *DB) Messages(ctx context.Context, in uint32) ([]hero.Message, error) {
	return scan(ctx, d, in, "message", messageOf(in))
}

// DeleteMessage deletes a message. Its key stays in a queue; the consumer finds no hash.
func (d *DB) DeleteMessage(ctx context.Context, in, caller, id uint32) error {
	return remove(ctx, d, in, hero.MessageKey(caller, id), hero.ReadMessage)
}

// MessageChange holds the fields that change with a message's status. Empty ones stay as
// they are.
type MessageChange struct {
	TransportID     string
	TransportStatus string
	Topic           string
	TargetContext   uint32
}

func (c MessageChange) fields() map[string]string {
	out := map[string]string{"transport_id": c.TransportID, "transport_status": c.TransportStatus, "topic": c.Topic}
	if c.TargetContext != 0 {
		out["target_context"] = decimal(c.TargetContext)
	}
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// MoveMessage sets a message's status, by a legal step, and the other fields of the change.
// A message that has the status already, and has not ended, takes the other fields
// alone: moved is false. Any other step is ErrIllegal; a message that ended never changes.
func (d *DB) MoveMessage(ctx context.Context, in uint32, key string, to hero.MessageStatus, c MessageChange) (moved bool, err error) {
	mark := rand.Text()
	err = edit(ctx, d, in, key, hero.ReadMessage, func(m hero.Message, h map[string]string) (change, error) {
		if h[stepField] == mark {
			return change{}, nil // an earlier try wrote it, and its answer was lost
		}
		if moved = m.Status != to; moved && !m.Status.MayBecome(to) {
			return change{}, illegal(key, string(m.Status), string(to))
		}
		set := c.fields()
		if m.Status.Ended() || !moved && len(set) == 0 {
			return change{}, nil
		}
		set["status"], set[stepField] = string(to), mark
		set["updated_at"] = decimal(d.seconds())
		return change{guard: "status", set: set}, nil
	})
	return moved && err == nil, err
}

// AppendLog appends lines to a message's log and keeps the last hero.MaxLogs.
func (d *DB) AppendLog(ctx context.Context, in uint32, key string, lines ...hero.Log) error {
	mark := rand.Text()
	return edit(ctx, d, in, key, hero.ReadMessage, func(m hero.Message, h map[string]string) (change, error) {
		if h[logField] == mark {
			return change{}, nil // an earlier try wrote them, and its answer was lost
		}
		m.Logs = append(m.Logs, lines...)
		m.Logs = m.Logs[max(0, len(m.Logs)-hero.MaxLogs):]
		set := pick(hero.Fields(m), "logs")
		set[logField] = mark
		return change{guard: "logs", set: set}, nil
	})
}

// logField marks a message with the last write to its log, as stepField does with its
// steps.
const logField = "edda_log"
