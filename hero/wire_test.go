package hero

import (
	"reflect"
	"testing"
)

func TestResultsAsText(t *testing.T) {
	for _, r := range []map[string]string{{"output": "hello\n"}, {"output": ""}, {"a": "1", "output": "x"}, {"a": `{"b":1}`}} {
		if got := ReadResult(ResultText(r)); !reflect.DeepEqual(got, r) {
			t.Errorf("%v came back as %v", r, got)
		}
	}
	for text, want := range map[string]map[string]string{
		"{broken": {"output": "{broken"}, "[1]": {"output": "[1]"}, `{"n":1.5,"l":[1],"s":"x"}`: {"n": "1.5", "l": "[1]", "s": "x"},
	} {
		if got := ReadResult(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v", text, got)
		}
	}
}
