# Debian's packages in a folder: nothing is installed in the system, and nobody need be root. To be sourced.

# Unpack packages and all that they need. $1: architecture, $2: folder, others: names. SUITE=unstable takes another suite than the system's.
# apt gets lists and a status of its own, so that it speaks of another machine on which nothing is installed.
unpack() {
	local arch=$1 to=$2 state site tool
	shift 2
	for tool in apt-get dpkg-deb; do
		command -v "$tool" >/dev/null || { echo "$tool is missing: this is made of Debian's packages" >&2; return 1; }
	done
	state=$(mktemp -d)
	mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$to"
	touch "$state/status"
	local apt=(apt-get -qq -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o "Dir::State=$state"
		-o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=)
	if [[ -n "${SUITE:-}" ]]; then
		site=$(apt-get indextargets --format '$(SITE)' | grep '/debian/*$' | head -1)
		[[ -n "$site" ]] || { echo "this system has no packages of Debian's: $SUITE is not to be had" >&2; return 1; }
		echo "deb $site $SUITE main" >"$state/sources.list"
		apt+=(-o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/nonexistent)
	fi
	"${apt[@]}" update && "${apt[@]}" --yes --download-only --no-install-recommends install "$@" >/dev/null || return 1
	for package in "$state"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$to" || return 1; done
	rm -rf "$state"
}
