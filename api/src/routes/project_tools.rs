//! Linters and type checkers of projects: which are there, and installing them into the data folder. They belong to the process that
//! is asked, as models that were pulled do.

use axum::Json as Reply;
use axum::extract::{FromRef, State};
use riverrun_projects::tools::{self, ToolEntry};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::state::Core;
use crate::wire::{InstallToolsBody, Items, Problem, ProjectToolView};

/// Most names of one request.
const MAX_NAMES: usize = 32;

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(project_tools, install_project_tools)).routes(routes!(remove_project_tool))
}

fn all(core: &Core) -> Items<ProjectToolView> {
    Items { items: tools::entries(&core.config().projects).into_iter().map(view).collect() }
}

fn view(tool: ToolEntry) -> ProjectToolView {
    ProjectToolView {
        name: tool.name.to_owned(),
        languages: tool.languages.into_iter().map(str::to_owned).collect(),
        status: tool.status.to_owned(),
        installed_version: tool.installed_version,
        version: tool.version.map(str::to_owned),
        client: tool.client.map(str::to_owned),
        program: tool.program,
        allowed: tool.allowed,
        fix: tool.fix,
    }
}

/// The linters and type checkers that analyses of projects know, and where each is on the server.
#[utoipa::path(get, path = "/projects/tools", tag = "projects", responses((status = 200, body = Items<ProjectToolView>)))]
async fn project_tools(State(core): State<Core>) -> Reply<Items<ProjectToolView>> {
    Reply(all(&core))
}

/// Installs tools into the server's data folder, in the versions that `GET /projects/tools` says, and answers when they are there. One
/// that is there already is left as it is, so a repeat does no harm.
#[utoipa::path(post, path = "/projects/tools", tag = "projects", request_body = InstallToolsBody,
    responses((status = 200, description = "all tools, after it", body = Items<ProjectToolView>),
        (status = 404, description = "no such tool", body = Problem), (status = 422, description = "it can't be installed", body = Problem),
        (status = 429, description = "another installation is at work", body = Problem),
        (status = 503, description = "the package registry can't be reached", body = Problem)))]
async fn install_project_tools(
    State(core): State<Core>,
    Json(body): Json<InstallToolsBody>,
) -> Result<Reply<Items<ProjectToolView>>, ApiError> {
    if body.names.is_empty() || body.names.len() > MAX_NAMES {
        let reason = format!("has {} names; between 1 and {MAX_NAMES} can be installed at once", body.names.len());
        return Err(ApiError::field("names", reason).hint("riverrun project tools ls shows them"));
    }
    tools::install(&body.names, &core.config().projects, core.tools().sandbox.as_ref()).await?;
    Ok(Reply(all(&core)))
}

/// Removes a tool from the server's data folder; what is on the `PATH` stays.
#[utoipa::path(delete, path = "/projects/tools/{name}", tag = "projects", params(("name" = String, Path, description = "a name of GET /projects/tools")),
    responses((status = 200, description = "all tools, after it", body = Items<ProjectToolView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn remove_project_tool(
    State(core): State<Core>,
    Path(name): Path<String>,
) -> Result<Reply<Items<ProjectToolView>>, ApiError> {
    let settings = core.config().projects.clone();
    tokio::task::spawn_blocking(move || tools::remove(&name, &settings))
        .await
        .map_err(|_| ApiError::internal("removing the tool broke off"))??;
    Ok(Reply(all(&core)))
}
