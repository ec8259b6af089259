"""The servicer of `RendererService`."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import renderer_service_pb2 as pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as rpc

from dressage_renderer.options import RenderOptions, SamplingOptions
from dressage_renderer.service import Renderer

FULL_NAME = "dressage.internal.v1.RendererService"


class RendererServicer(rpc.RendererServiceServicer):
    """Serves `RendererService`."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def Render(self, request: pb.RenderRequest, context: Any) -> pb.RenderResponse:
        """Render and store a video of a recorded trajectory."""
        rendered = await self._renderer.render(
            trajectory=request.trajectory,
            video=request.video,
            options=options_of(request),
            frames_prefix=request.frames_prefix,
            timeout=context.time_remaining(),
        )
        return pb.RenderResponse(
            video=request.video,
            frames=rendered.report.frames,
            duration=rendered.report.duration,
            render_seconds=rendered.report.seconds,
            frame_keys=rendered.frame_keys,
        )

    async def RenderFrames(self, request: pb.RenderFramesRequest, context: Any) -> pb.RenderFramesResponse:
        """Render and store frames of a recorded trajectory."""
        frames = await self._renderer.sample(
            trajectory=request.trajectory,
            prefix=request.prefix,
            options=sampling_of(request),
            timeout=context.time_remaining(),
        )
        return pb.RenderFramesResponse(
            frames=frames.frames,
            times=frames.times,
            pages=frames.pages,
            clip=frames.clip,
            fps=frames.fps,
            start=frames.start,
            end=frames.end,
            episode_seconds=frames.episode_seconds,
            reused=frames.reused,
        )

    async def RecordPoses(self, request: pb.RecordPosesRequest, context: Any) -> pb.RecordPosesResponse:
        """Compute and store the poses of a recorded trajectory."""
        rows = await self._renderer.poses(
            trajectory=request.trajectory, poses=request.poses, timeout=context.time_remaining()
        )
        return pb.RecordPosesResponse(poses=request.poses, states=rows)


def sampling_of(request: pb.RenderFramesRequest) -> SamplingOptions:
    """Return the request's options; 0 means the default.

    :raises InvalidArgument: for a value out of range or a window that ends before it begins.
    """
    default = SamplingOptions()
    return SamplingOptions(
        fps=request.fps or default.fps,
        start=request.start,
        end=request.end or None,
        max_frames=request.max_frames or default.max_frames,
        width=request.width or default.width,
        height=request.height or default.height,
        camera=request.camera,
        overlay=request.overlay,
        motion_trail=request.motion_trail,
        pages=request.pages,
        clip=request.clip,
        first_number=request.first_number or default.first_number,
    )


def options_of(request: pb.RenderRequest) -> RenderOptions:
    """Return the request's options; 0 means the default.

    :raises InvalidArgument: for a value out of range or a window that ends before it begins.
    """
    default = RenderOptions()
    return RenderOptions(
        width=request.width or default.width,
        height=request.height or default.height,
        fps=request.fps or default.fps,
        start=request.start,
        end=request.end or None,
        speed=request.speed or default.speed,
        camera=request.camera,
        overlay=request.overlay,
        overlay_return=request.overlay_return,
        stills=request.frames if request.frames_prefix else 0,
    )
