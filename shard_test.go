package edda

import (
	"fmt"
	"testing"
)

// TestAKeyKeepsItsShard: stores outlive a version, so these shards never change.
func TestAKeyKeepsItsShard(t *testing.T) {
	for _, test := range []struct {
		key  Key
		want int // of 64
	}{
		{Key{"acme", "order", "O1"}, 39},
		{Key{"acme", "order", "O2"}, 20},
		{Key{"", "order", "O1"}, 1},
		{Key{"a", "b", ""}, 21},
		{Key{"ab", "", ""}, 14},
		{Key{}, 7},
	} {
		for of := 1; of <= MaxShards; of *= 2 {
			for i := range of {
				if got, want := (Shard{i, of}).Has(test.key), i == test.want%of; got != want {
					t.Errorf("%q: shard %d of %d has it: %v, want %v", test.key, i, of, got, want)
				}
			}
		}
	}
}

// TestKeysSpreadEvenly: keys that count up are as even as random ones.
func TestKeysSpreadEvenly(t *testing.T) {
	const keys, of = 64_000, 64
	for _, format := range []string{"O%d", "order-%08d", "%d"} {
		n := [of]int{}
		for i := range keys {
			k := Key{"acme", "order", fmt.Sprintf(format, i)}
			for s := range of {
				if (Shard{s, of}).Has(k) {
					n[s]++
				}
			}
		}
		for s, got := range n {
			if got < keys/of*8/10 || got > keys/of*12/10 {
				t.Errorf("%s: shard %d has %d of %d keys", format, s, got, keys)
			}
		}
	}
}

func TestTheWholeHasEveryKey(t *testing.T) {
	if !(Shard{}).Has(Key{"a", "b", "c"}) || !(Shard{}).Whole() || !(Shard{0, 1}).Whole() || (Shard{0, 2}).Whole() {
		t.Error("the zero value is not the whole")
	}
}

// TestStoresBesideOneAnotherHaveNoKeyInCommon: the rule, held against the keys themselves.
func TestStoresBesideOneAnotherHaveNoKeyInCommon(t *testing.T) {
	var shares []Share
	for of := 1; of <= 8; of *= 2 {
		for i := range of {
			shares = append(shares, Share{"shop", Shard{i, of}})
		}
	}
	for _, a := range shares {
		for _, b := range shares {
			common := false
			for i := range 200 {
				k := Key{"acme", "order", fmt.Sprint(i)}
				common = common || a.Has(k) && b.Has(k)
			}
			if a.Beside(b) == common {
				t.Errorf("%v beside %v: %v, and they have a key in common: %v", a, b, a.Beside(b), common)
			}
			if c := (Share{"other", b.Shard}); a.Beside(c) {
				t.Errorf("%v is beside %v", a, c)
			}
		}
	}
}
