//! The binary `rendezvous`: reads the command line and does what it says.
#![forbid(unsafe_code)]

use std::process::ExitCode as ProcessExit;

use clap::{CommandFactory, Parser};
use rendezvous_control::directory::ApiKey;
use rendezvous_node::cli::{Cli, Command, KeyCommand, ServeArgs};
use rendezvous_node::config::{Config, ConfigError, Log, LogFormat};
use rendezvous_node::exit::{ExitCode, ServeError};
use rendezvous_node::output::{Stderr, complain, line};
use rendezvous_node::{doctor, peers, serve};

fn main() -> ProcessExit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no error.
            let code = if error.use_stderr() { ExitCode::Usage } else { ExitCode::Ok };
            let _ = error.print();
            return ProcessExit::from(code as u8);
        }
    };
    let code = match cli.command.unwrap_or(Command::Serve(ServeArgs::default())) {
        Command::Serve(args) => report(run_server(&args)),
        Command::CheckConfig { file } => report(check(&file)),
        Command::Doctor { engine } => run_doctor(engine.into()),
        Command::Key(KeyCommand::New) => report(new_key()),
        Command::Host(args) => with_log(&Log::default(), || peers::run_host(&args)),
        Command::Join(args) => with_log(&Log::default(), || peers::run_join(&args)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rendezvous", &mut script);
            line(String::from_utf8_lossy(&script).trim_end());
            ExitCode::Ok
        }
        Command::Man => manual(),
    };
    ProcessExit::from(code as u8)
}

fn run_server(args: &ServeArgs) -> Result<(), ServeError> {
    let (mut config, development_key) = match &args.config {
        Some(file) => (Config::read(file)?, None),
        None => (Config::default(), Some(development_key()?)),
    };
    let listen = &mut config.listen;
    listen.http = args.http.unwrap_or(listen.http);
    listen.admin = args.admin.unwrap_or(listen.admin);
    listen.udp = args.udp.unwrap_or(listen.udp);
    config.dataplane.engine = args.engine.unwrap_or(config.dataplane.engine);
    if let Some(key) = &development_key {
        config.add_development_tenant(key);
    }
    start_log(&config.log)?;
    serve::serve(&config, development_key.as_ref())
}

/// The key of the development tenant: from the environment, or a new one each start.
fn development_key() -> Result<ApiKey, ServeError> {
    match std::env::var("RENDEZVOUS_DEV_KEY") {
        Ok(text) => ApiKey::parse(&text).map_err(|_| ConfigError::DevKey.into()),
        Err(std::env::VarError::NotPresent) => random_key(),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::DevKey.into()),
    }
}

fn random_key() -> Result<ApiKey, ServeError> {
    let (mut id, mut secret) = ([0; 10], [0; 32]);
    let refused =
        |error: getrandom::Error| ServeError::System { step: "draw random bytes", source: error.into() };
    getrandom::fill(&mut id).map_err(refused)?;
    getrandom::fill(&mut secret).map_err(refused)?;
    Ok(ApiKey::generate(id, secret))
}

fn check(file: &std::path::Path) -> Result<(), ServeError> {
    let config = Config::read(file)?;
    config.check()?;
    rendezvous_control::directory::Directory::new(&config.directory(), &config.limits)
        .map_err(ConfigError::from)?;
    line(format_args!("{} is good", file.display()));
    Ok(())
}

fn run_doctor(choice: rendezvous_net::EngineChoice) -> ExitCode {
    if doctor::run(choice).honours_choice() { ExitCode::Ok } else { ExitCode::Unavailable }
}

fn new_key() -> Result<(), ServeError> {
    let key = random_key()?;
    line(format_args!("key (shown this once): {}", key.to_text()));
    line("for the configuration, under the principal it belongs to:");
    line("  [[tenants.principals.keys]]");
    line(format_args!("  id = \"{}\"", key.id()));
    line(format_args!("  secret_blake3 = \"{}\"", key.fingerprint().to_hex()));
    Ok(())
}

fn manual() -> ExitCode {
    match clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()) {
        Ok(()) => ExitCode::Ok,
        Err(_) => ExitCode::Unavailable,
    }
}

fn report(result: Result<(), ServeError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            complain(format_args!("rendezvous: {error}"));
            error.exit_code()
        }
    }
}

fn with_log(log: &Log, work: impl FnOnce() -> ExitCode) -> ExitCode {
    match start_log(log) {
        Ok(()) => work(),
        Err(error) => report(Err(error)),
    }
}

/// The log goes to standard error; `RUST_LOG` overrides the configured filter.
fn start_log(log: &Log) -> Result<(), ServeError> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| log.filter.clone());
    let filter =
        tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| ServeError::Log(error.to_string()))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Stderr);
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| ServeError::Log(error.to_string()))
}
