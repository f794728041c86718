package node

import "testing"

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
