package hero

import "fmt"

// FieldError names the field and the hash that cannot be read as the documents
// say: the hash is broken, or another program's under a key of ours. Such a hash
// is left as it is.
type FieldError struct {
	Key   string // of the hash
	Field string // empty where the key itself is wrong
	// Value is what the field holds, cut short; empty for fields that may hold
	// secrets.
	Value string
	Why   string
}

// maxShown bounds the value that an error shows.
const maxShown = 60

func (e *FieldError) Error() string {
	switch {
	case e.Field == "":
		return fmt.Sprintf("%.200q %s", e.Key, e.Why)
	case e.Value == "":
		return fmt.Sprintf("hash %s: field %s %s", e.Key, e.Field, e.Why)
	}
	return fmt.Sprintf("hash %s: field %s is %q: %s", e.Key, e.Field, e.Value, e.Why)
}

func shown(value string) string {
	if len(value) > maxShown {
		return value[:maxShown] + "…"
	}
	return value
}
