package smtpeffect

import (
	"fmt"
	"regexp"
	"strings"

	"edda"
	"edda/effects"
)

// Reply codes with a meaning of their own.
const (
	accepted = 250
	closing  = 421 // the server ends the connection
)

// maxText bounds the text of a reply that is kept.
const maxText = 512

// reply is a server's reply.
type reply struct {
	code           int
	enhanced, text string // the status of RFC 3463, and the text
}

// enhancedStatus begins each line of a reply that has such a status.
var enhancedStatus = regexp.MustCompile(`^([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)`)

// parseReply takes the enhanced status from the lines of a reply.
func parseReply(code int, message string) reply {
	out := reply{code: code}
	var lines []string
	for line := range strings.Lines(message) {
		line = strings.TrimSpace(line)
		if found := enhancedStatus.FindStringSubmatch(line); found != nil {
			out.enhanced, line = found[1], line[len(found[0]):]
		}
		lines = append(lines, line)
	}
	out.text = shortened(strings.Join(lines, " "))
	return out
}

func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "\uFFFD")
}

// negative reports whether a code refuses: for now (4yz) or for good (5yz).
func negative(code int) bool { return code >= 400 && code < 600 }

func (r reply) temporary() bool { return r.code < 500 }

// response is the answer of a server that accepted the mail.
func (r reply) response(id string) effects.Response {
	return effects.Response{Status: r.code, Body: r.body(id, r.text, nil)}
}

func (r reply) body(id, message string, rejected []rejection) map[string]any {
	list := make([]any, len(rejected))
	for i, no := range rejected {
		list[i] = no.value()
	}
	return map[string]any{"code": r.code, "enhanced": r.enhanced, "message": message, "message_id": id, "rejected": list}
}

// refusal is a reply that refuses the mail for all recipients.
type refusal struct {
	stage string
	reply
	rejected []rejection // the recipients that were refused
}

func (r *refusal) Error() string { return r.stage + ": " + r.text }

// response is the answer of a server that refused the mail. It is about this attempt only: an
// earlier attempt of unknown outcome may have been accepted.
func (r *refusal) response(id string) effects.Response {
	return effects.Response{
		Status: r.code, Body: r.body(id, r.Error(), r.rejected),
		Retry: r.temporary(), Refused: true, Apart: true,
	}
}

// rejection is a recipient that the server refused.
type rejection struct {
	address
	reply
}

func (r rejection) value() map[string]any {
	return map[string]any{"address": r.address.String(), "code": r.code, "enhanced": r.enhanced, "message": r.text}
}

// refused returns the first permanent reply, because another attempt would get it again, or else
// the first one.
func refused(rejected []rejection, of int) *refusal {
	worst := rejected[0].reply
	for _, r := range rejected {
		if worst.temporary() && !r.temporary() {
			worst = r.reply
		}
	}
	stage := fmt.Sprintf("%d of %d recipients refused", len(rejected), of)
	return &refusal{stage: stage, reply: worst, rejected: rejected}
}

// unanswered is the error of a mail that was sent in full and may have been accepted.
func unanswered(text string) error {
	return edda.Classify(edda.Temporary, "no answer to the mail: %s", text)
}
