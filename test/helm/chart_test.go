package helm

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/isthmus"
)

// Values of what the guide describes.
const (
	public = `
etcd: {url: "etcd://e1:2379,e2:2379/isthmus", secret: etcd-client}
brokers:
- {name: b1, secret: broker-b1, enrol: true, storage: 1Gi, loadBalancerIP: 203.0.113.5}
- {name: b2, secret: broker-b2, enrol: true, serviceType: NodePort, annotations: {a: b}, settings: {lease: 30s}}
proxies:
- {name: p1, secret: proxy-p1, broker: "broker.example.org:443", advertise: ["203.0.113.9:443"]}
- {name: p2, secret: proxy-p2, broker: "broker.example.org:443", advertise: ["203.0.113.10:443"], hostNetwork: true, nodeSelector: {edge: "yes"}, settings: {limits: {links: 500}}}
pullSecrets: [{name: registry}]
podAnnotations: {team: grid}
`
	site = `
frontal: {enabled: true, site: sitea, broker: "broker.example.org:443", storage: 1Gi, gatewayOnly: true, policy: "contact: grid@sitea.example.org\nrules: [{name: siteb, effect: allow, sites: [siteb]}]\n", settings: {measure: 30m, profile: {egress: "443"}}}
helper: {enabled: true, tolerations: [{operator: Exists}], settings: {offer: {jobs: 2, allow: [{site: siteb}]}}}
job: {enabled: true, image: "registry.example.org/solver:1", command: [solver, "--steps", "10"], ranks: 4, size: 8, first: 4}
`
	onlyNodes = `helper: {enabled: true, frontal: "10.0.0.1:7440"}`
)

// secrets are those that the values name, with their keys.
var secrets = map[string][]string{
	"broker-b1": nil, "broker-b2": nil, "etcd-client": nil, "isthmus-job": nil, // mounted whole
	"proxy-p1": {"token"}, "proxy-p2": {"token"}, "isthmus-frontal": {"token"}, "isthmus-helper": {"token"},
}

// manifests are what a chart renders to.
type manifests struct {
	deployments []*appsv1.Deployment
	daemonSets  []*appsv1.DaemonSet
	services    []*corev1.Service
	configMaps  map[string]*corev1.ConfigMap
	claims      map[string]bool
	jobs        []*batchv1.Job
}

func render(values string) (string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return "", err
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "grid", Namespace: "default"}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&text, "---\n# %s\n%s\n", name, files[name])
		}
	}
	return text.String(), nil
}

var separator = regexp.MustCompile(`(?m)^---\s*$`)

// rendered renders a chart, and decodes it strictly: a field that the API does not know is a fault.
func rendered(t *testing.T, values string) *manifests {
	t.Helper()
	text, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{configMaps: map[string]*corev1.ConfigMap{}, claims: map[string]bool{}}
	for _, doc := range separator.Split(text, -1) {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		if head.Kind == "" {
			continue // comments only
		}
		if err := m.add(head.APIVersion+" "+head.Kind, []byte(doc)); err != nil {
			t.Errorf("%v:\n%s", err, doc)
		}
	}
	return m
}

func (m *manifests) add(kind string, doc []byte) error {
	switch kind {
	case "apps/v1 Deployment":
		d := &appsv1.Deployment{}
		m.deployments = append(m.deployments, d)
		return yaml.UnmarshalStrict(doc, d)
	case "apps/v1 DaemonSet":
		d := &appsv1.DaemonSet{}
		m.daemonSets = append(m.daemonSets, d)
		return yaml.UnmarshalStrict(doc, d)
	case "v1 Service":
		s := &corev1.Service{}
		m.services = append(m.services, s)
		return yaml.UnmarshalStrict(doc, s)
	case "batch/v1 Job":
		j := &batchv1.Job{}
		m.jobs = append(m.jobs, j)
		return yaml.UnmarshalStrict(doc, j)
	case "v1 ConfigMap":
		c := &corev1.ConfigMap{}
		err := yaml.UnmarshalStrict(doc, c)
		m.configMaps[c.Name] = c
		return err
	case "v1 PersistentVolumeClaim":
		c := &corev1.PersistentVolumeClaim{}
		err := yaml.UnmarshalStrict(doc, c)
		m.claims[c.Name] = true
		return err
	}
	return fmt.Errorf("a %s is none of what the chart is for", kind)
}

// pods returns all pod templates by their controllers' names.
func (m *manifests) pods() map[string]corev1.PodTemplateSpec {
	pods := map[string]corev1.PodTemplateSpec{}
	for _, d := range m.deployments {
		pods["deployment "+d.Name] = d.Spec.Template
	}
	for _, d := range m.daemonSets {
		pods["daemon set "+d.Name] = d.Spec.Template
	}
	for _, j := range m.jobs {
		pods["job "+j.Name] = j.Spec.Template
	}
	return pods
}

// Nothing is installed that was not asked for; what is has all that it refers to.
func TestChart(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		pods   string
	}{
		"nothing":    {"{}", ""},
		"public":     {public, "deployment grid-broker-b1, deployment grid-broker-b2, deployment grid-proxy-p1, deployment grid-proxy-p2"},
		"site":       {site, "daemon set grid-helper, deployment grid-frontal, job grid-job"},
		"only nodes": {onlyNodes, "daemon set grid-helper"},
	} {
		t.Run(name, func(t *testing.T) {
			m := rendered(t, tc.values)
			if got := strings.Join(slices.Sorted(maps.Keys(m.pods())), ", "); got != tc.pods {
				t.Errorf("pods %s, want %s", got, tc.pods)
			}
			for name, pod := range m.pods() {
				m.checkVolumes(t, name, pod.Spec)
				checkConfined(t, name, pod.Spec)
			}
			for _, d := range m.deployments {
				checkSelector(t, d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
			}
			for _, d := range m.daemonSets {
				checkSelector(t, d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
			}
			for _, s := range m.services {
				m.checkService(t, s)
			}
		})
	}
}

func checkSelector(t *testing.T, name string, selector, labels map[string]string) {
	t.Helper()
	for k, v := range selector {
		if labels[k] != v {
			t.Errorf("%s selects %s=%s, and its pods have %q", name, k, v, labels[k])
		}
	}
	if len(selector) == 0 {
		t.Errorf("%s selects all pods", name)
	}
}

// checkVolumes follows every volume to what is in it, and every mount to its volume.
func (m *manifests) checkVolumes(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
		switch {
		case v.ConfigMap != nil && m.configMaps[v.ConfigMap.Name] == nil:
			t.Errorf("%s: there is no config map %s", name, v.ConfigMap.Name)
		case v.Secret != nil && !has(secrets, v.Secret.SecretName):
			t.Errorf("%s: the values name no secret %s", name, v.Secret.SecretName)
		case v.PersistentVolumeClaim != nil && !m.claims[v.PersistentVolumeClaim.ClaimName]:
			t.Errorf("%s: there is no claim %s", name, v.PersistentVolumeClaim.ClaimName)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, mount := range c.VolumeMounts {
			v, ok := volumes[mount.Name]
			if !ok {
				t.Errorf("%s: %s mounts a volume %s that is not there", name, c.Name, mount.Name)
			}
			if v.ConfigMap != nil && mount.SubPath != "" && !has(m.configMaps[v.ConfigMap.Name].Data, mount.SubPath) {
				t.Errorf("%s: config map %s has no %s", name, v.ConfigMap.Name, mount.SubPath)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !slices.Contains(secrets[e.ValueFrom.SecretKeyRef.Name], e.ValueFrom.SecretKeyRef.Key) {
				t.Errorf("%s: %s comes from an unknown secret or key: %+v", name, e.Name, e.ValueFrom.SecretKeyRef)
			}
		}
	}
}

func has[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

// checkConfined checks that a pod has no privilege that it does not need.
func checkConfined(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil {
		t.Errorf("%s: %+v", name, s)
	}
	if pod.HostNetwork && len(s.Sysctls) > 0 {
		t.Errorf("%s sets %v on the node's own network", name, s.Sysctls)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s has a token of the API", name)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Add) > 0 || !slices.Contains(s.Capabilities.Drop, "ALL") {
			t.Errorf("%s: %s: %+v", name, c.Name, s)
		}
	}
}

// checkService checks that a service finds pods, and its ports.
func (m *manifests) checkService(t *testing.T, s *corev1.Service) {
	t.Helper()
	for _, pod := range m.pods() {
		chosen := len(s.Spec.Selector) > 0
		for k, v := range s.Spec.Selector {
			chosen = chosen && pod.Labels[k] == v
		}
		if !chosen {
			continue
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				t.Errorf("service %s: no port %v", s.Name, p.TargetPort)
			}
		}
		return
	}
	t.Errorf("service %s: no pods have %v", s.Name, s.Spec.Selector)
}

// What is missing is said.
func TestValues(t *testing.T) {
	for values, want := range map[string]string{
		`brokers: [{secret: s}]`: "a broker has a name",
		`brokers: [{name: b}]`:   "a broker has a secret",
		`brokers: [{name: b, secret: s, enrol: true}, {name: c, secret: s}]`: "give etcd.url",
		`proxies: [{name: p, secret: s, broker: "b:443"}]`:                   "a proxy says where sites reach it",
		`proxies: [{name: p, secret: s, advertise: ["192.0.2.1:443"]}]`:      "a proxy names its broker",
		`frontal: {enabled: true, broker: "b:443"}`:                          "frontal.site is the site's name",
		`frontal: {enabled: true, site: a}`:                                  "frontal.broker says where",
		`helper: {enabled: true}`:                                            "helper.frontal says where",
		`job: {enabled: true, image: x}`:                                     "job.command is",
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// The daemons take the settings: the programs themselves read them.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/isthmus", "./cmd/isthmus-broker")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	certificates(t, filepath.Join(dir, "isthmus"), dir)
	for _, values := range []string{public, site, onlyNodes} {
		m := rendered(t, values)
		for name, c := range m.configMaps {
			for file, text := range c.Data {
				role := strings.TrimSuffix(file, ".yaml")
				argv := []string{filepath.Join(dir, "isthmus"), role}
				switch role {
				case "broker":
					argv = []string{filepath.Join(dir, "isthmus-broker")}
				case "policy":
					argv = []string{filepath.Join(dir, "isthmus"), "check"}
				}
				if role != "policy" {
					text = withFiles(t, dir, role, text, m.configMaps[name+"-policy"])
				}
				file = filepath.Join(dir, file)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if role != "policy" {
					argv = append(argv, "--check", "--config")
				}
				cmd := exec.Command(argv[0], append(argv[1:], file)...)
				cmd.Env = append(os.Environ(), m.environment(name)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s\n%s", name, err, out, text)
				}
			}
		}
	}
}

// environment returns what the pods that mount a config map have in theirs for settings.
func (m *manifests) environment(configMap string) (env []string) {
	for _, pod := range m.pods() {
		for _, v := range pod.Spec.Volumes {
			if v.ConfigMap == nil || v.ConfigMap.Name != configMap {
				continue
			}
			for _, e := range pod.Spec.Containers[0].Env {
				if strings.HasPrefix(e.Name, "ISTHMUS_") && e.Value != "" {
					env = append(env, e.Name+"="+strings.ReplaceAll(e.Value, "$(POD_IP)", "10.2.3.4"))
				}
			}
		}
	}
	return env
}

var paths = regexp.MustCompile(`/(var/lib|etc)/isthmus/[a-z0-9/.-]+`)

// daemons are what the certificates are for, as "isthmus ca issue" wants it.
var daemons = map[string][]string{
	"broker": {"broker", "b1"}, "frontal": {"frontal", "sitea"}, "proxy": {"proxy", "p1"}, "helper": {"helper", "n1@sitea"},
}

// certificates makes a grid's CA, a certificate for each daemon, and a broker's for issuing others, in the
// folder "certs" of a folder.
func certificates(t *testing.T, isthmus, dir string) {
	t.Helper()
	commands := [][]string{{"init", "--dir", "certs", "grid"}, {"issuer", "--dir", "certs", "--out", "certs"}}
	for role, names := range daemons {
		commands = append(commands, slices.Concat([]string{"issue", "--dir", "certs", "--out", filepath.Join("certs", role)}, names))
	}
	for _, args := range commands {
		cmd := exec.Command(isthmus, append([]string{"ca"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
}

// withFiles returns a daemon's settings with the paths in them moved below a folder, and puts there what
// they name: certificates and keys from the folder "certs", and the config map's policy.
func withFiles(t *testing.T, dir, role, text string, policy *corev1.ConfigMap) string {
	t.Helper()
	for _, path := range paths.FindAllString(text, -1) {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var content []byte
		switch name, kind := filepath.Base(path), filepath.Ext(path); {
		case name == "ca.pem" || strings.HasPrefix(name, "issuer."):
			content = read(t, filepath.Join(dir, "certs", name))
		case kind == ".pem" || kind == ".key":
			content = certificate(t, dir, role, kind == ".key" || name == "key.pem")
		case name == "policy.yaml":
			content = []byte(policy.Data[name])
		default:
			continue // a folder or a socket, which the daemon makes
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths.ReplaceAllStringFunc(text, func(path string) string { return filepath.Join(dir, path) })
}

// certificate returns a daemon's certificate, or its key.
func certificate(t *testing.T, dir, role string, key bool) []byte {
	t.Helper()
	name := map[bool]string{false: ".pem", true: ".key"}[key]
	files, err := filepath.Glob(filepath.Join(dir, "certs", role, role+"-*"+name))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s's %s: %v, %v", role, name, files, err)
	}
	return read(t, files[0])
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Rendering twice gives the same, or a deployment would restart its pods for nothing.
func TestSame(t *testing.T) {
	for _, values := range []string{public, site} {
		a, errA := render(values)
		b, errB := render(values)
		if errA != nil || errB != nil || !bytes.Equal([]byte(a), []byte(b)) {
			t.Errorf("%v, %v\n%s\n%s", errA, errB, a, b)
		}
	}
}
