package coordinator

import "testing"

// The documents write mycelium://<ip> without the brackets of a URL.
func TestAnAddressOfMyceliumIsASupervisorsURL(t *testing.T) {
	for url, good := range map[string]bool{
		"mycelium://5f3:41a0::1": true, "mycelium://5f3:41a0::1?topic=supervisor.rpc": true, "mycelium://5f3:41a0::1/?topic=x": true,
		"mycelium://[5f3:41a0::1]?topic=x": true, "mycelium://abcd": true, "mycelium://": false, "mycelium://?topic=x": false, "http://5f3::1": false,
	} {
		if err := checkURL("supervisor_url", url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}
