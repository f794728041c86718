package node

import "testing"

func TestTheOriginalsVariables(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	h, err := heroDefaults().fromEnv(env())
	if err != nil || h.API.httpAddr() != "127.0.0.1:9652" || h.API.wsAddr() != "127.0.0.1:9653" || h.Mycelium.address() != "http://127.0.0.1:8990" {
		t.Fatalf("%+v %v", h, err)
	}
	h, err = heroDefaults().fromEnv(env("COORDINATOR_URL", "http://localhost:7001", "MYCELIUM_URL", "http://127.0.0.1:7002"))
	if err != nil || h.API.httpAddr() != "127.0.0.1:7001" || h.Mycelium.address() != "http://127.0.0.1:7002" {
		t.Fatalf("%+v %v", h, err)
	}
	said := heroDefaults()
	said.API.HTTPPort, said.Mycelium.Port = 1, 2
	h, err = said.fromEnv(env("COORDINATOR_URL", "http://127.0.0.1:7001", "MYCELIUM_URL", "http://127.0.0.1:7002"))
	if err != nil || h.API.HTTPPort != 1 || h.Mycelium.address() != "http://127.0.0.1:2" {
		t.Fatalf("the environment went before what was said: %+v %v", h, err)
	}
	rest := heroDefaults()
	if rest.Mycelium.Protocol = protocolREST; rest.Mycelium.address() != "http://127.0.0.1:8989" {
		t.Fatal(rest.Mycelium.address())
	}
	for _, bad := range []string{"coordinator", "http://127.0.0.1", "http://10.0.0.1:80"} {
		if _, err := heroDefaults().fromEnv(env("COORDINATOR_URL", bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
