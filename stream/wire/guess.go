package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"edda/internal/jsonvalue"
)

// The members of a body that usually say what an event is. A member id is not among those of its id: it
// usually names the thing and not the event, and an instance drops an event whose id it has had.
var (
	typeMembers        = []string{"type", "event_type", "eventType", "event", "kind", "action"}
	idMembers          = []string{"event_id", "eventId", "message_id", "messageId"}
	timeMembers        = []string{"time", "timestamp", "occurred_at", "occurredAt", "created_at", "createdAt"}
	dataMembers        = []string{"data", "payload"}
	correlationMembers = []string{"correlation_id", "correlationId"}
)

// Guess proposes how to read messages such as these. It leaves empty what a default says, and what it
// cannot tell.
func Guess(messages []Message) (o MappingOptions) {
	if len(messages) == 0 {
		return o
	}
	var bodies []map[string]any
	for _, m := range messages {
		if isCloudEvent(m) || (&mappedMessage{Message: m}).structured() {
			return o // its attributes say all
		}
		if v, err := jsonvalue.Decode(m.Data); err == nil {
			body, _ := v.(map[string]any)
			bodies = append(bodies, body)
		}
	}
	g := guesser{bodies}
	isText := func(v any) bool { text, ok := v.(string); return ok && text != "" }
	member := g.member(typeMembers, isText)
	guessTokens(messages, member != "", &o)
	if member != "" {
		o.Type = "=body." + member
		if data := g.member(dataMembers, func(v any) bool { _, ok := v.(map[string]any); return ok }); data != "" {
			o.Data = "=body." + data
		}
	}
	withoutID := func(m Message) bool { return m.header(headerMsgID) == "" }
	if member := g.member(idMembers, isText); member != "" && slices.ContainsFunc(messages, withoutID) {
		o.ID = "=body." + member
	}
	if member := g.member(timeMembers, isTime); member != "" {
		o.Time = "=body." + member
	}
	if member := g.member(correlationMembers, isText); member != "" {
		o.Correlation = "=body." + member
	}
	return o
}

func isTime(v any) bool {
	text, _ := v.(string)
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

// guesser looks for members that all bodies have.
type guesser struct{ bodies []map[string]any }

func (g guesser) member(names []string, is func(any) bool) string {
	if len(g.bodies) == 0 {
		return ""
	}
	for _, name := range names {
		if !slices.ContainsFunc(g.bodies, func(body map[string]any) bool { return !is(body[name]) }) {
			return name
		}
	}
	return ""
}

// guessTokens finds the tokens of the subjects with the type, the aggregate's type and its id: the last
// word is the type, the word before it the aggregate's type. A single word is the aggregate's type if the
// bodies may say the type.
func guessTokens(messages []Message, typeInBody bool, o *MappingOptions) {
	n := len(strings.Split(messages[0].Subject, "."))
	var words, ids []int
	for i := range n {
		id := false
		for _, m := range messages {
			tokens := strings.Split(m.Subject, ".")
			if len(tokens) != n {
				return
			}
			id = id || looksLikeID(tokens[i])
		}
		if id {
			ids = append(ids, i)
		} else {
			words = append(words, i)
		}
	}
	token := func(i int) string { return fmt.Sprintf("=tokens[%d]", i) }
	if len(ids) > 0 {
		o.AggregateID = token(ids[len(ids)-1])
	}
	if len(words) == 0 {
		return
	}
	last := words[len(words)-1]
	switch {
	case len(words) == 1 && typeInBody:
		o.AggregateType = token(last)
		return
	case len(words) > 1 && words[len(words)-2] != n-2:
		o.AggregateType = token(words[len(words)-2])
	}
	if last != n-1 {
		o.Type = token(last)
	}
}

// looksLikeID reports whether a token has a digit, as most ids do and most words do not.
func looksLikeID(token string) bool { return strings.ContainsFunc(token, unicode.IsDigit) }
