package hero

// MaxLogs bounds the log lines that one message keeps; the oldest go first.
const MaxLogs = 1000

// Log is one line about a message.
type Log struct {
	Time   uint32 `json:"time"`  // Unix seconds
	Level  string `json:"level"` // debug, info, warn or error
	Source string `json:"source"`
	Text   string `json:"text"`
}

// logs reads a list of log lines, of which some may be texts alone.
func (r *HashReader) logs(name string) []Log {
	out := []Log{}
	r.objects(name, "text", func(r *HashReader) {
		out = append(out, Log{Time: r.Number("time"), Level: r.text("level"), Source: r.text("source"), Text: r.text("text")})
	})
	return out
}
