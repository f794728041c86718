package cli

import (
	"strings"
	"testing"
)

// links are what Kubernetes sets in every container for a service with one port.
func links(service, port string) []string {
	return []string{
		service + "_SERVICE_HOST=10.96.0.7", service + "_SERVICE_PORT=" + port, service + "_SERVICE_PORT_HTTP=" + port,
		service + "_PORT=tcp://10.96.0.7:" + port, service + "_PORT_" + port + "_TCP=tcp://10.96.0.7:" + port,
		service + "_PORT_" + port + "_TCP_PROTO=tcp", service + "_PORT_" + port + "_TCP_PORT=" + port, service + "_PORT_" + port + "_TCP_ADDR=10.96.0.7",
	}
}

func TestKubernetesServiceLinksMakeRunRefuse(t *testing.T) {
	var env []string
	for _, service := range []string{"EDDA", "EDDA_NATS", "EDDA_HERO_MYCELIUM", "EDDA_EFFECTS_2"} {
		env = append(env, links(service, "8700")...)
	}
	env = append(env, "EDDA_DNS_PORT=udp://10.96.0.9:53", "EDDA_DNS_PORT_53_UDP=udp://10.96.0.9:53", "EDDA_DNS_PORT_53_UDP_ADDR=10.96.0.9", "EDDA_NATS_URL=nats://n:4222")
	code, out, said := shell(t, env, "config", "view")
	if code != 0 || !strings.Contains(out, "url: nats://n:4222") {
		t.Fatalf("%d %s", code, said)
	}
	_, plain, _ := shell(t, []string{"EDDA_NATS_URL=nats://n:4222"}, "config", "view")
	if out != plain {
		t.Errorf("a service link became a setting:\n%s\nwant\n%s", out, plain)
	}
	for variable, want := range map[string]string{
		"EDDA_PORT=8700":               "unknown variable EDDA_PORT; the address to listen on is EDDA_ADDR, such as 127.0.0.1:8700",
		"EDDA_HOST=0.0.0.0":            "unknown variable EDDA_HOST; the address to listen on is EDDA_ADDR",
		"EDDA_NATS_ULR=x":              "unknown variable EDDA_NATS_ULR; did you mean EDDA_NATS_URL?",
		"EDDA_NATS_PORT=4222":          "unknown variable EDDA_NATS_PORT",
		"EDDA_HERO_MYCELIUM_PORT=many": "hero.mycelium.port",
	} {
		if code, _, said := shell(t, []string{variable}, "config", "view"); code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", variable, code, said)
		}
	}
}
