package versions

import (
	"fmt"
	"slices"
	"strconv"

	"edda"
)

// shownHash is how many digits of a hash distinguish the texts of one version.
const shownHash = 8

// Names are the names of the texts that are not the first of their version.
type Names map[Text]string

// Names names later texts of a version, which exist in edda dev: N+dev.<hash>.
func (k *Texts) Names() (Names, error) {
	kept, err := k.kept()
	return namesOf(kept), err
}

// Of names a text for people; others than those in n have the number of their version.
func (n Names) Of(t Text) string {
	if name := n[t]; name != "" {
		return name
	}
	return strconv.Itoa(t.Version)
}

func namesOf(kept []edda.Manifest) Names {
	type number struct {
		saga    string
		version int
	}
	first, names := map[number]string{}, Names{}
	for _, k := range slices.SortedStableFunc(slices.Values(kept), func(a, b edda.Manifest) int { return a.Loaded.Compare(b.Loaded) }) {
		n := number{k.Saga, k.Version}
		if first[n] == "" {
			first[n] = k.Hash
		}
		if k.Hash != first[n] {
			names[textOf(k)] = fmt.Sprintf("%d+dev.%.*s", k.Version, shownHash, k.Hash)
		}
	}
	return names
}
