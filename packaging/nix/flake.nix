# nix run 'git+file:.?dir=packaging/nix' -- -- date
{
  description = "Run a command so that it never runs twice at once";
  inputs.nixpkgs.url = "nixpkgs";

  outputs = { self, nixpkgs }:
    let
      source = ../..;
      version = builtins.head (builtins.match ".*\n__version__ = \"([^\"]*)\".*" (builtins.readFile (source + "/solo/__init__.py")));
      build = system:
        let python = nixpkgs.legacyPackages.${system}.python3Packages;
        in python.buildPythonApplication {
          pname = "solo-run";
          inherit version;
          src = source;
          pyproject = true;
          build-system = [ python.hatchling ];
          dependencies = [ python.typer python.rich python.psutil ];
          doCheck = false; # `make test` needs processes and files outside the sandbox
          pythonImportsCheck = [ "solo" ];
          meta = { description = "Run a command so that it never runs twice at once"; license = nixpkgs.lib.licenses.mit; mainProgram = "solo"; platforms = nixpkgs.lib.platforms.linux; };
        };
    in {
      packages = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: { default = build system; });
    };
}
