# Installs a package of Debian where there is apt, and one of Python where there is pip, from local files. Their version
# is the number of the round, `$1`.
set -eu
rm -rf /tmp/packages
mkdir -p /tmp/packages
cd /tmp/packages
if [ -d /etc/apt ]; then
  mkdir -p kept/DEBIAN kept/usr/lib/kept
  cat >kept/DEBIAN/control <<END
Package: kept
Version: $1
Architecture: all
Maintainer: kept <kept@example.org>
Description: kept
END
  echo "$1" >kept/usr/lib/kept/version
  dpkg-deb --build kept kept.deb >/dev/null
  apt-get install -y -o APT::Sandbox::User=root ./kept.deb >apt.log 2>&1 || cat apt.log
fi
python3 -m pip --version >/dev/null 2>&1 || exit 0
python3 - "$1" <<'END'
import sys, zipfile

version = sys.argv[1]
info = f"kept-{version}.dist-info"
files = {
    "kept.py": f"version = {version}\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: kept\nVersion: {version}\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
with zipfile.ZipFile(f"kept-{version}-py3-none-any.whl", "w") as wheel:
    for name, content in files.items():
        wheel.writestr(name, content)
END
PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-index --root-user-action ignore ./*.whl
