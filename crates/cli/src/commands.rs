//! All commands: the list, and nothing else. Each has its own file with its flags and its `run`.

use clap::Subcommand;

use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod activation;
mod agent;
mod audit;
mod backup;
mod breakers;
mod call;
mod completions;
mod config_reference;
mod doctor;
mod health;
mod import;
mod instances;
mod jobs;
mod keys;
mod log_level;
mod mcp;
mod migrate;
mod policy;
mod restore;
mod serve;
mod server;
mod tenant;
mod token;
mod tool;
mod usage;
mod webhook;
mod worker;

/// Of each thread of a server; only what is used of it takes memory.
const STACK_BYTES: usize = 16 << 20;

/// What became of a command that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Done,
    /// It did its work, and the answer is "not well": exit code 1 without an error.
    Unfit,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::ServeCommand),
    Mcp(mcp::McpCommand),
    Call(call::CallCommand),
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    #[command(subcommand)]
    Server(server::ServerCommand),
    #[command(subcommand)]
    Breakers(breakers::BreakersCommand),
    #[command(subcommand)]
    Import(import::ImportCommand),
    #[command(subcommand)]
    Token(token::TokenCommand),
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    LogLevel(log_level::LogLevelCommand),
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    #[command(subcommand)]
    Activation(activation::ActivationCommand),
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    Usage(usage::UsageCommand),
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    Worker(worker::WorkerLinkCommand),
    Instances(instances::InstancesCommand),
    Health(health::HealthCommand),
    Backup(backup::BackupCommand),
    Restore(restore::RestoreCommand),
    Doctor(doctor::DoctorCommand),
    Completions(completions::CompletionsCommand),
    #[command(hide = true)]
    ConfigReference(config_reference::ConfigReference),
}

impl Command {
    /// A server uses every core; everything else is one conversation. Its threads have the stack that policies need which are
    /// nested as deeply as policies may be: Cedar judges by what is left of it.
    pub(crate) fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        let mut builder = match self {
            Self::Mcp(command) if command.is_server() => tokio::runtime::Builder::new_multi_thread(),
            Self::Serve(_) | Self::Worker(_) => tokio::runtime::Builder::new_multi_thread(),
            _ => tokio::runtime::Builder::new_current_thread(),
        };
        builder.thread_stack_size(STACK_BYTES).enable_all().build()
    }

    /// Does it.
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Serve(command) => return Box::pin(command.run(context)).await,
            Self::Worker(command) => return Box::pin(command.run(context)).await,
            Self::Doctor(command) => return command.run(context).await,
            Self::Health(command) => return command.run(context).await,
            Self::Token(command) => return command.run(context).await,
            Self::Audit(command) => return command.run(context).await,
            Self::Policy(command) => return command.run(context).await,
            Self::Tool(command) => return command.run(context).await,
            Self::Server(command) => return command.run(context).await,
            Self::Import(command) => return command.run(context).await,
            Self::Webhook(command) => return command.run(context).await,
            Self::Migrate(command) => return Box::pin(command.run(context)).await,
            Self::Mcp(command) => Box::pin(command.run(context)).await?,
            Self::Call(command) => command.run(context).await?,
            Self::Jobs(command) => command.run(context).await?,
            Self::Keys(command) => command.run(context).await?,
            Self::Breakers(command) => command.run(context).await?,
            Self::LogLevel(command) => command.run(context).await?,
            Self::Instances(_) => instances::InstancesCommand::run(context).await?,
            Self::Tenant(command) => command.run(context).await?,
            Self::Agent(command) => command.run(context).await?,
            Self::Activation(command) => command.run(context).await?,
            Self::Usage(command) => command.run(context).await?,
            Self::Backup(command) => Box::pin(command.run(context)).await?,
            Self::Restore(command) => Box::pin(command.run(context)).await?,
            Self::Completions(command) => command.run(context),
            Self::ConfigReference(command) => command.run(context),
        }
        Ok(CommandOutcome::Done)
    }
}
