package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// auditFile has one line for the start and one for the end of every run. Nothing removes
// it. A new file begins each month.
const auditFile = "audit-2006-01.jsonl"

// record is one line of the audit.
type record struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // begin, end or refuse
	Run     string    `json:"run,omitempty"`
	Who     string    `json:"who"`
	Context string    `json:"context,omitempty"`
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Hash    string    `json:"hash"` // SHA-256 of the script
	Sandbox bool      `json:"sandbox,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Exit    *int      `json:"exit,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Millis  int64     `json:"ms,omitempty"`
}

func (h *Host) record(event, run string, s Script) record {
	return record{Time: time.Now().UTC(), Event: event, Run: run, Who: bounded(s.Who), Context: bounded(s.Context), ID: bounded(s.ID),
		Type: bounded(s.Type), Hash: s.hash(), Sandbox: h.options.Sandbox != nil}
}

// bounded bounds texts of callers.
func bounded(s string) string { return s[:min(len(s), maxName)] }

// audit appends a record with one write, so that several runners may share the file.
func (h *Host) audit(r record) error {
	line, err := json.Marshal(r)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(h.options.Dir, r.Time.Format(auditFile)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
