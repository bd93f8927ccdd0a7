#!/usr/bin/env bash
# deploy/release.sh: the steps of a release, as .github/workflows/release.yml runs them. RELEASING.md has what comes before and after.
#
#   check TAG REPOSITORY            what names the version agrees, and Cargo.toml names this repository
#   notes                           print the part of CHANGELOG.md about the version
#   files PROGRAMS OUT REPOSITORY   package all programs in folders below PROGRAMS; one of them has to run here
#   sign OUT                        a signature of SHA256SUMS, as OUT/SHA256SUMS.sigstore.json
#   image IMAGE FOLDER              build the image for this machine, push it, and leave a file in FOLDER whose name is its digest
#   images IMAGE FOLDER             join those images under the version, sign what they make, and print its digest
#   chart IMAGE OUT                 package the Helm chart, which then runs that image
#   charts IMAGE OUT                push the packaged chart to the folder charts beside the image, and sign it
#   npm OUT                         publish the packages of npm: the programs first, which the launcher needs
#   pypi OUT                        publish the wheels
#   crate                           publish the crate, if Cargo.toml allows it
#   draft TAG OUT                   a draft of a release with all files
#   open TAG                        show the draft to everybody
#
# A release that failed half-way can be run again: what is published already is left out, or is the same once more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)

main() {
  local wanted=-1
  case ${1:-} in
    notes | crate) wanted=1 ;;
    sign | npm | pypi | open) wanted=2 ;;
    check | image | images | chart | charts | draft) wanted=3 ;;
    files) wanted=4 ;;
  esac
  [ $# -eq "$wanted" ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
  "${1}_" "${@:2}"
}

check_() { python3 -m versions check "$1" "$2"; }

notes_() { python3 -m versions notes; }

files_() {
  local programs program runs
  mapfile -t programs < <(find "$1" -type f \( -name raincheck -o -name raincheck.exe \) | sort)
  [ ${#programs[@]} -gt 0 ] || die "no program is in $1"
  # A file that is carried from machine to machine loses this.
  chmod +x "${programs[@]}"
  for program in "${programs[@]}"; do
    ! "$program" --version >/dev/null 2>&1 </dev/null || runs=$program
  done
  [ -n "${runs:-}" ] || die "none of the programs in $1 runs here"
  for program in "${programs[@]}"; do
    "$here/package.sh" "$program" "$2" "$runs"
  done
  python3 -m channels "$2" "$3"
}

sign_() { cosign sign-blob --yes --bundle "$1/SHA256SUMS.sigstore.json" "$1/SHA256SUMS"; }

image_() {
  local metadata=$2.json
  mkdir -p "$2"
  docker buildx build --file "$here/Dockerfile" --provenance=mode=max --sbom=true --metadata-file "$metadata" \
    --output "type=image,name=$1,push-by-digest=true,name-canonical=true,push=true" "$here/.."
  touch "$2/$(digest_of 'containerimage.digest' <"$metadata")"
}

images_() {
  local image=$1 digest digests=()
  for digest in "$2"/*; do digests+=("$image@sha256:$(basename "$digest")"); done
  docker buildx imagetools create --tag "$image:$version" "${digests[@]}" >&2
  digest=$(docker buildx imagetools inspect --format '{{json .Manifest}}' "$image:$version" | digest_of digest)
  cosign sign --yes "$image@sha256:$digest" >&2
  echo "sha256:$digest"
}

# digest_of NAME: what JSON on standard input has under this name, without its kind.
digest_of() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]].removeprefix("sha256:"))' "$1"
}

chart_() {
  local copy
  copy=$(mktemp -d)
  cp -R "$here/helm/raincheck" "$copy/raincheck"
  # A chart that is published has no other image beside it.
  sed -i "s|^    repository: raincheck\$|    repository: $1|" "$copy/raincheck/values.yaml"
  grep -q "^    repository: $1\$" "$copy/raincheck/values.yaml" || die "values.yaml does not name the image where it did"
  helm package "$copy/raincheck" --destination "$2"
  rm -rf "$copy"
}

charts_() {
  local folder pushed
  folder=$(dirname "$1")/charts
  pushed=$(helm push "$2/raincheck-$version.tgz" "oci://$folder" 2>&1) || die "$pushed"
  say "$pushed"
  cosign sign --yes "$folder/raincheck@$(sed -n 's/^Digest: //p' <<<"$pushed")"
}

npm_() {
  local file package
  # The launcher comes last: before the programs are there, nobody can install it.
  for file in "$1"/raincheck-[a-z]*-"$version".tgz "$1/raincheck-$version.tgz"; do
    package=$(basename "$file" "-$version.tgz")
    if [ "$(npm view "$package@$version" version 2>/dev/null)" = "$version" ]; then
      echo "$package $version is published already"
    else
      # With a trusted publisher, npm adds the provenance itself.
      npm publish "$file" --access public
    fi
  done
}

# The index takes a file a second time where it is the same.
pypi_() { uv publish --trusted-publishing always "$1"/*.whl; }

crate_() {
  if grep -q '^publish = false' "$here/../Cargo.toml"; then
    echo "Cargo.toml has publish = false: no crate is published"
  # Not in here, where cargo would show the crate that is not published yet.
  elif (cd / && cargo info --quiet --registry crates-io "raincheck@$version" >/dev/null 2>&1); then
    echo "raincheck $version is published already"
  else
    (cd "$here/.." && cargo publish --locked)
  fi
}

draft_() {
  gh release view "$1" >/dev/null 2>&1 \
    || notes_ | gh release create "$1" --draft --verify-tag --title "raincheck $version" --notes-file -
  gh release upload "$1" --clobber "$2"/*
}

open_() { gh release edit "$1" --draft=false; }

say() { printf '%s\n' "$1"; }

die() {
  echo "error: $1" >&2
  exit 1
}

main "$@"
