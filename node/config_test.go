package node

import (
	"strings"
	"testing"
)

// No hint of any group or setting is what was written.
func TestNoHintRepeatsTheKey(t *testing.T) {
	for _, key := range append(keys(), groups()...) {
		for _, word := range []string{key, key + "x", key + ".x"} {
			if h := hint(word, append(keys(), groups()...)); !known(word) && len(membersOf(word)) == 0 && h == "; did you mean "+word+"?" {
				t.Errorf("the hint for %s repeats it", word)
			}
		}
	}
}

// TestAListOfWordsNamesItsWords: an unknown word in streams.cloudevents is refused.
func TestAListOfWordsNamesItsWords(t *testing.T) {
	for value, refused := range map[string]bool{"facts,commands": false, "facts": false, "facts,results": true} {
		_, err := Load(Sources{Environ: []string{"EDDA_STREAMS_CLOUDEVENTS=" + value}})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), `streams.cloudevents "results": want a list of facts, commands`) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
