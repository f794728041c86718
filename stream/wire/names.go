package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// The streams.
const (
	AggregateEvents  = "AGGREGATE_EVENTS"
	WorkflowCommands = "WORKFLOW_COMMANDS"
	WorkflowEvents   = "WORKFLOW_EVENTS"
)

// maxNamePart keeps edda_effect_<part>_<hash> below the 32 characters that
// NATS advises.
const maxNamePart = 10

// ConsumerName is edda_<role>_<part>_<hash>: the part is for people, the hash
// of all that must tell consumers apart is for NATS.
func ConsumerName(role, part string, distinct ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{part}, distinct...), "\x00")))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	part = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, part)
	if part != "" {
		part = part[:min(len(part), maxNamePart)] + "_"
	}
	return ConsumerPrefix(role) + part + hash
}

// ConsumerPrefix is how the names of a role's consumers begin.
func ConsumerPrefix(role string) string { return "edda_" + role + "_" }
