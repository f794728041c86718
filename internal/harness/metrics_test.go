package harness

import "testing"

func TestCounters(t *testing.T) {
	c := ParseCounters("# HELP a_total x\na_total 2\na_total_more 9\nb_total{x=\"1\",y=\"2 3\"} 4\nb_total{x=\"2\"} 5\n")
	if c.Sum("a_total") != 2 || c.Sum("b_total") != 9 || c.Sum("b_total", `x="1"`) != 4 || c.Sum("none") != 0 {
		t.Errorf("%v", c)
	}
}
