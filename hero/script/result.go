package script

import (
	"bytes"
	"encoding/json"
	"strings"
)

// object is the JSON object on the last line of an output: its values as strings,
// strings raw and others as compact JSON. Blank lines after it do not count.
func object(output string) (map[string]string, bool) {
	output = strings.TrimRight(output, " \t\r\n")
	line := strings.TrimSpace(output[strings.LastIndexByte(output, '\n')+1:])
	if !strings.HasPrefix(line, "{") {
		return nil, false
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &raw); err != nil {
		return nil, false
	}
	out := make(map[string]string, len(raw))
	for key, value := range raw {
		out[key] = asString(value)
	}
	return out, true
}

func asString(value json.RawMessage) string {
	var s string
	if value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return string(value)
	}
	return b.String()
}
